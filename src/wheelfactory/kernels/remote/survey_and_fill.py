"""Before a build compiles kernels on its own host: list its compiles, and have a cluster do what the store lacks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wheelfactory.build.setup_py import SetupRun, run_setup
from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import ProgressCallback
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.request import SURVEYED
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory.kernels.remote.samples import NOTHING_FILLED, Filled
from wheelfactory.kernels.setup_env import CompileScope, ledger_path, read_outcome, setup_env, store_folder
from wheelfactory.kernels.source_list import SourceList


def fill_from_cluster(
    setup: SetupRun,
    set_ids: Sequence[str],
    scope: CompileScope,
    log: Path,
    report_progress: ProgressCallback,
    *,
    cache: Path,
    appended: str | None,
    planned: SourceList | None,
) -> Filled:
    """Have the cluster of `scope` compile what the store lacks for this build; nothing without a cluster.

    Returns what to give to `verify_samples` after the build. Arguments are those of `setup_env`. Raises its errors,
    those of `run_setup`, and those of `fill.fill_store`.
    """
    if scope.remote is None:
        return NOTHING_FILLED
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read at the import; lost connections are reported by ours
    # imported late: they need the extra `remote`
    from wheelfactory.kernels.remote.fill import fill_store, find_missing_kernels

    folder, kernels = setup.scratch / "survey", store_folder(cache)
    folder.mkdir()
    listing, survey_log = replace(setup, scratch=folder), log.with_name(f"{log.stem}-survey.log")
    survey_file = folder / "survey.json"
    extras = setup_env(listing, set_ids, scope, cache=cache, appended=appended, planned=planned, survey=survey_file)
    try:
        run_setup(listing, survey_log, extras, report_progress)
    except BuildError:
        # raises the listing's own error, which is more precise than the failure of setup.py
        result = read_outcome(listing, kernels, survey_log)
        if result is None or result.state != SURVEYED:
            raise
    else:
        return NOTHING_FILLED  # the release compiles no kernels: setup.py has made a wheel
    survey, ledger = Survey.read(survey_file), Ledger.read(ledger_path(cache))
    missing = find_missing_kernels(survey, kernels, ledger, ignore_cache=scope.remote.ignore_cache)
    return fill_store(survey, missing, scope.remote, report_progress, deadline=scope.deadline)
