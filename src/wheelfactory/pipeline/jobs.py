"""Plan the jobs of a workflow run from cells and kernel sets: the jobs file, and the matrix of each job."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file, write_atomic
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.kernels.archive_manifest import shard_suffix
from wheelfactory.kernels.kernel_set import STORED_SET_PREFIX, KernelSet, stored_set_name
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.select import GITHUB_MATRIX_LIMIT, needs_runner, strategy_json


class CellJob(FrozenModel):
    """A cell to build, and the group of cells that its wheel is uploaded with."""

    id: str
    group: str
    kernel_set: str = ""
    """Id of the kernel set that the cell links; empty for Triton."""


class KernelSetJobs(FrozenModel):
    """A kernel set that cells of the run link."""

    id: str
    archive_name: str
    """Name of the set on the archive host of the target."""
    shards: tuple[str, ...] = ()
    """Shards to compile in this run, ``1/4`` to ``4/4``; empty if the set is stored or left to the next run."""
    stored: bool = False
    unavailable: str = ""
    """Why its sources cannot be listed, which fails the cells that link it; empty if they can."""


class WorkflowJobs(FrozenModel):
    """Every cell and kernel set of one workflow run."""

    cells: tuple[CellJob, ...]
    kernel_sets: tuple[KernelSetJobs, ...]
    unplanned: tuple[str, ...] = ()
    """Ids of selected cells that are not built, because they need a runner (see `split_by_runner`)."""

    def write(self, path: Path) -> None:
        """Write the jobs as JSON, for later jobs of the run."""
        write_atomic(path, (self.model_dump_json(indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> WorkflowJobs:
        """Read a file that `write` wrote. Raises `InputError` for any other file."""
        hint = "create it with `wheelfactory ci jobs TARGET --jobs FILE`"
        data = read_file(path, InputError("cannot read the jobs file", str(path), hint))
        return parse_model(cls, data, InputError("not a jobs file", str(path), hint))


def output_lines(values: Mapping[str, object]) -> list[str]:
    """Format step outputs as ``name=value`` lines for ``$GITHUB_OUTPUT``; booleans become ``true`` and ``false``."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    # a line break would let a value add outputs of its own
    assert not any("\n" in text for text in texts.values())
    return [f"{name}={text}" for name, text in texts.items()]


# limit on the bytes of the wheels of one group, each at its upper size estimate. GitHub guarantees a hosted runner
# 14 GB, and a download can exist twice: packed and unpacked
MAX_GROUP_BYTES = 6 * 1000**3


def split_by_runner(cells: Iterable[Cell], runner: str) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
    """Split cells into those to build and those that need a runner; `runner` is its label, empty if there is none."""
    planned: list[Cell] = []
    unplanned: list[Cell] = []
    for cell in cells:
        (planned if runner or not needs_runner(cell) else unplanned).append(cell)
    return tuple(planned), tuple(unplanned)


def make_jobs(
    matrix: Matrix,
    cells: Sequence[Cell],
    sets: Sequence[KernelSet],
    stored: Collection[str],
    shards: Mapping[str, Sequence[str]],
    unavailable: Mapping[str, str] = MappingProxyType({}),
    unplanned: Sequence[Cell] = (),
) -> WorkflowJobs:
    """Choose the jobs of a run for `cells`, which link the kernel sets `sets`.

    `stored` are the ids of sets that the archive host has; `shards` maps every other set id to its shards, or
    `unavailable` to the reason why it has none. `unplanned` are the cells that need a runner.

    Raises `InputError` if the wheels need more than `GITHUB_MATRIX_LIMIT` groups.
    """
    set_jobs, free_entries = [], GITHUB_MATRIX_LIMIT
    for kernel_set in sets:
        missing = tuple(shards.get(kernel_set.id, ())) if kernel_set.id not in stored else ()
        # GitHub never starts a job with a larger matrix, so a set that does not fit waits for the next run
        now = missing if len(missing) <= free_entries else ()
        free_entries -= len(now)
        name = stored_set_name(matrix, kernel_set)
        set_jobs.append(
            KernelSetJobs(
                id=kernel_set.id,
                archive_name=name,
                shards=now,
                stored=kernel_set.id in stored,
                unavailable=unavailable.get(kernel_set.id, ""),
            )
        )
    set_ids = {cell: kernel_set.id for kernel_set in sets for cell in kernel_set.cells}
    return WorkflowJobs(
        cells=tuple(
            CellJob(id=cell.id, group=str(group), kernel_set=set_ids.get(cell, ""))
            for cell, group in zip(cells, assign_groups(matrix, cells), strict=True)
        ),
        kernel_sets=tuple(set_jobs),
        unplanned=tuple(cell.id for cell in unplanned),
    )


def assign_groups(matrix: Matrix, cells: Sequence[Cell]) -> list[int]:
    """Return the upload group of each cell, numbered from 0, so that the wheels of one group fit a runner's disk.

    Raises `InputError` if there are more groups than one GitHub matrix allows.
    """
    numbers: list[int] = []
    group, group_bytes = 0, 0
    for cell in cells:
        backend = matrix.flash_attn[cell.flash_attn].backend(cell.backend)
        assert backend  # every cell's release has the cell's backend
        largest = backend.wheel_bytes[-1]
        if group_bytes and group_bytes + largest > MAX_GROUP_BYTES:
            group, group_bytes = group + 1, 0
        group_bytes += largest
        numbers.append(group)
    if group >= GITHUB_MATRIX_LIMIT:
        which = f"{len(cells)} cells make {group + 1} groups of wheels, GitHub's limit is {GITHUB_MATRIX_LIMIT}"
        raise InputError(
            "too many cells for one run", which, "select fewer cells with --only, then run it for the rest"
        )
    return numbers


def kernel_entries(jobs: WorkflowJobs) -> list[dict[str, str]]:
    """Return the matrix entries of the kernel job: one for each shard, with the name of its artifact."""
    return [
        {
            "set": set_jobs.id,
            "shard": shard,
            "artifact": f"{STORED_SET_PREFIX}{set_jobs.id}{shard_suffix(shard)}",
        }
        for set_jobs in jobs.kernel_sets
        for shard in set_jobs.shards
    ]


def cell_entries(cells: Sequence[CellJob]) -> list[dict[str, str]]:
    """Return the matrix entries of the build jobs: one for each cell."""
    return [{"id": cell.id, "group": cell.group, "kernel-set": cell.kernel_set} for cell in cells]


def group_matrix(cells: Sequence[CellJob]) -> str:
    """Return the matrix of the upload job as JSON: one entry for each group, with the ids of its cells."""
    groups: dict[str, list[str]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell.id)
    return strategy_json([{"group": group, "cells": " ".join(ids)} for group, ids in groups.items()])


def parse_group_cells(groups: str) -> tuple[Cell, ...]:
    """Parse a `group_matrix` into its cells. Raises `InputError` for any other text."""
    try:
        return tuple(Cell.parse(text) for entry in json.loads(groups)["include"] for text in entry["cells"].split())
    except (ValueError, LookupError, TypeError, AttributeError):
        hint = "pass the output `groups` of `wheelfactory ci jobs`"
        raise InputError("not groups of cells", groups[:80], hint) from None
