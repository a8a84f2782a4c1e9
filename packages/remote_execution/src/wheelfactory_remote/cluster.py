"""What wheelfactory asks of a cluster (`kernels.setup_env.Cluster`): fill the store, then verify samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.progress import ProgressCallback
from wheelfactory.kernels.compiler.costs import Ledger
from wheelfactory.kernels.compiler.survey import Survey
from wheelfactory.kernels.setup_env import ledger_path, store_folder
from wheelfactory_remote.fill import fill_store, find_missing_kernels
from wheelfactory_remote.results import verify_samples
from wheelfactory_remote.server import Remote


@dataclass(frozen=True)
class RemoteCluster:
    """A `Cluster` behind a server of the Remote Execution API."""

    remote: Remote

    @contextmanager
    def fill_store(
        self, survey: Survey, cache: Path, report_progress: ProgressCallback, *, deadline: float | None
    ) -> Iterator[None]:
        """See `Cluster`."""
        ledger = Ledger.read(ledger_path(cache))
        missing = find_missing_kernels(survey, store_folder(cache), ledger, ignore_cache=self.remote.ignore_cache)
        filled = fill_store(survey, missing, self.remote, report_progress, deadline=deadline)
        try:
            yield
        finally:
            verify_samples(filled)
