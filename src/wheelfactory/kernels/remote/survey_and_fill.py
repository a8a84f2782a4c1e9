"""Prepare a run of setup.py that compiles kernels: a cluster, if there is one, compiles first what the store lacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from wheelfactory.build.setup_py import SetupExtras, SetupRun
from wheelfactory.core.progress import ProgressCallback
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.flags import APPEND_VARIABLE
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory.kernels.remote.samples import NOTHING_FILLED, Filled
from wheelfactory.kernels.remote.settings import Remote
from wheelfactory.kernels.setup_env import CompileScope, ledger_path, run_compile, setup_env, store_folder
from wheelfactory.kernels.source_list import list_planned_sources
from wheelfactory.matrix.facts import Context


def prepare_compile(
    setup: SetupRun,
    set_ids: Sequence[str],
    scope: CompileScope,
    log: Path,
    report_progress: ProgressCallback,
    context: Context,
) -> tuple[SetupExtras, Filled]:
    """Prepare a run of setup.py that compiles what `scope` says and links the sets with these ids.

    Returns what to add to the run, and what to give to `verify_samples` after it. Raises `InputError` for a wrong
    digest in the matrix, the errors of `setup_env` and `run_setup`, and of `fill.fill_store`.
    """
    cell, cache = setup.recipe.cell, context.cache
    release, archs = context.matrix.flash_attn[cell.flash_attn], setup.recipe.archs
    planned = list_planned_sources(cell.flash_attn, release, cache, context.environ, archs)
    appended = context.environ.get(APPEND_VARIABLE)
    prepare = partial(setup_env, set_ids=set_ids, scope=scope, cache=cache, appended=appended, planned=planned)
    filled = NOTHING_FILLED
    if scope.remote:
        survey = _survey_compiles(setup, log, report_progress, store_folder(cache), prepare)
        filled = _fill_store(survey, scope.remote, scope.deadline, report_progress, cache) if survey else filled
    return prepare(setup), filled


def _survey_compiles(
    setup: SetupRun, log: Path, report_progress: ProgressCallback, kernels: Path, prepare: Callable[..., SetupExtras]
) -> Survey | None:
    """List the compiles of a build; None if the release compiles no kernels."""
    folder = setup.scratch / "survey"
    folder.mkdir()
    listing, survey_log = replace(setup, scratch=folder), log.with_name(f"{log.stem}-survey.log")
    survey_file = folder / "survey.json"
    raw, _ = run_compile(listing, prepare(listing, survey=survey_file), kernels, survey_log, report_progress)
    return None if raw else Survey.read(survey_file)


def _fill_store(
    survey: Survey, remote: Remote, deadline: float | None, report_progress: ProgressCallback, cache: Path
) -> Filled:
    """Have the cluster compile what the store lacks."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read at the import; lost connections are reported by ours
    # imported late: gRPC takes a while, and most builds have no cluster
    from wheelfactory.kernels.remote.fill import fill_store, find_missing_kernels

    ledger = Ledger.read(ledger_path(cache))
    missing = find_missing_kernels(survey, store_folder(cache), ledger, ignore_cache=remote.ignore_cache)
    return fill_store(survey, missing, remote, report_progress, deadline=deadline)
