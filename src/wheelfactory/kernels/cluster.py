"""What the factory asks of a cluster that compiles kernels; packages/remote_execution implements it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from wheelfactory.core.progress import ProgressCallback
from wheelfactory.kernels.compiler.survey import Survey


class Cluster(Protocol):
    """Machines that compile kernels before the build host does."""

    def fill_store(
        self, survey: Survey, cache: Path, report_progress: ProgressCallback, *, deadline: float | None
    ) -> AbstractContextManager[None]:
        """Save objects that the store in `cache` lacks; after the block, compare samples with those made in it.

        What it cannot compile is left for the block. Raises `InputError` or `BuildError` if it cannot be used at all,
        and `BuildError` after the block if a sample differs.
        """
