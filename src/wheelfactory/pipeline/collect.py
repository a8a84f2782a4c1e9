"""What the kernel jobs of a run left -> finished sets on the shelf, and the cells that can be built now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from wheelfactory.core.errors import BuildError, FactoryError, RunAgainError
from wheelfactory.core.files import scratch_dir
from wheelfactory.kernels.archive import find_archives
from wheelfactory.kernels.archive_host import ArchiveHost, upload_set
from wheelfactory.kernels.resume import merge_set
from wheelfactory.pipeline.jobs import CellJob, SetJobs, WorkflowJobs

MAX_ROUNDS = 8
"""Runs for the same kernels, one after the other. Five hours of four cores each, eight times, is more than twice what
the largest set (62 CPU hours) takes in one shard; a set that is not done by then will not be."""


class SetState(str, Enum):
    """What became of a kernel set."""

    STORED = "kept"
    PENDING = "later"
    FAILED = "failed"


@dataclass(frozen=True)
class CollectedSet:
    """A set of the plan, what became of it, and why, if it is not kept."""

    set_jobs: SetJobs
    state: SetState
    error: FactoryError | None = None


def collect_sets(plan: WorkflowJobs, folder: Path, host: ArchiveHost) -> tuple[CollectedSet, ...]:
    """Join the shards of each set in `folder`, and keep the sets that are whole.

    One set at a time is unpacked and joined, and removed when it is kept: all of them would fill a runner's disk.
    """
    return tuple(_gathered(planned, folder, host) for planned in plan.kernel_sets)


def _gathered(planned: SetJobs, folder: Path, shelf: ArchiveHost) -> CollectedSet:
    if planned.stored:
        return CollectedSet(planned, SetState.STORED)
    if not planned.shards:
        return CollectedSet(
            planned, SetState.PENDING, RunAgainError("not begun", planned.id, "its shards did not fit this run")
        )
    given = find_archives(folder, planned.id)
    try:
        with scratch_dir(folder) as stores:
            archive = merge_set(folder, planned.id, stores)
            upload_set(shelf, planned.archive_name, archive)
            if archive not in given:
                archive.unlink()
    except RunAgainError as error:
        return CollectedSet(planned, SetState.PENDING, error)
    except FactoryError as error:
        return CollectedSet(planned, SetState.FAILED, error)
    return CollectedSet(planned, SetState.STORED)


def fail_after_last_round(gathered: Sequence[CollectedSet], round_number: int) -> tuple[CollectedSet, ...]:
    """The same, where in the last round what is not done has failed."""
    if round_number < MAX_ROUNDS:
        return tuple(gathered)
    hint = "look what it takes (`wheelfactory plan`), choose a larger runner, and dispatch the workflow again"

    def settled(item: CollectedSet) -> CollectedSet:
        which = f"{item.set_jobs.id} in {round_number} runs ({item.error})"
        error = BuildError("not compiled", which, hint)
        return CollectedSet(item.set_jobs, SetState.FAILED, error) if item.state is SetState.PENDING else item

    return tuple(map(settled, gathered))


def buildable_cells(
    plan: WorkflowJobs, gathered: Collection[CollectedSet], published: Collection[str]
) -> tuple[CellJob, ...]:
    """The cells to build now: none while kernels are still compiled, as a release is published once and whole; then
    all but those whose kernels failed, and those that were published since the plan was made.
    """
    if any(item.state is SetState.PENDING for item in gathered):
        return ()
    failed = {item.set_jobs.id for item in gathered if item.state is SetState.FAILED}
    return tuple(cell for cell in plan.cells if cell.kernel_set not in failed and cell.id not in published)
