"""What the kernel jobs of a run left -> finished sets on the shelf, and the cells that can be built now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from wheelfactory.core.errors import BuildError, FactoryError, RunAgainError
from wheelfactory.core.files import scratch_dir
from wheelfactory.kernels.archive import find_archives
from wheelfactory.kernels.earlier import join_set
from wheelfactory.kernels.shelf import Shelf, keep_set
from wheelfactory.pipeline.jobs import Plan, PlannedCell, PlannedSet

MOST_ROUNDS = 8
"""Runs for the same kernels, one after the other. Five hours of four cores each, eight times, is more than twice what
the largest set (62 CPU hours) takes in one shard; a set that is not done by then will not be."""


class State(str, Enum):
    """What became of a kernel set."""

    KEPT = "kept"
    LATER = "later"
    FAILED = "failed"


@dataclass(frozen=True)
class Gathered:
    """A set of the plan, what became of it, and why, if it is not kept."""

    planned: PlannedSet
    state: State
    error: FactoryError | None = None


def gather_sets(plan: Plan, folder: Path, shelf: Shelf) -> tuple[Gathered, ...]:
    """Join the shards of each set in `folder`, and keep the sets that are whole.

    One set at a time is unpacked and joined, and removed when it is kept: all of them would fill a runner's disk.
    """
    return tuple(_gathered(planned, folder, shelf) for planned in plan.kernel_sets)


def _gathered(planned: PlannedSet, folder: Path, shelf: Shelf) -> Gathered:
    if planned.kept:
        return Gathered(planned, State.KEPT)
    if not planned.shards:
        return Gathered(planned, State.LATER, RunAgainError("not begun", planned.id, "its shards did not fit this run"))
    given = find_archives(folder, planned.id)
    try:
        with scratch_dir(folder) as stores:
            archive = join_set(folder, planned.id, stores)
            keep_set(shelf, planned.kept_name, archive)
            if archive not in given:
                archive.unlink()
    except RunAgainError as error:
        return Gathered(planned, State.LATER, error)
    except FactoryError as error:
        return Gathered(planned, State.FAILED, error)
    return Gathered(planned, State.KEPT)


def settle(gathered: Sequence[Gathered], round_number: int) -> tuple[Gathered, ...]:
    """The same, where in the last round what is not done has failed."""
    if round_number < MOST_ROUNDS:
        return tuple(gathered)
    hint = "look what it takes (`wheelfactory plan`), choose a larger runner, and dispatch the workflow again"

    def settled(item: Gathered) -> Gathered:
        which = f"{item.planned.id} in {round_number} runs ({item.error})"
        error = BuildError("not compiled", which, hint)
        return Gathered(item.planned, State.FAILED, error) if item.state is State.LATER else item

    return tuple(map(settled, gathered))


def buildable(plan: Plan, gathered: Collection[Gathered], published: Collection[str]) -> tuple[PlannedCell, ...]:
    """The cells to build now: none while kernels are still compiled, as a release is published once and whole; then
    all but those whose kernels failed, and those that were published since the plan was made.
    """
    if any(item.state is State.LATER for item in gathered):
        return ()
    failed = {item.planned.id for item in gathered if item.state is State.FAILED}
    return tuple(cell for cell in plan.cells if cell.kernel_set not in failed and cell.id not in published)
