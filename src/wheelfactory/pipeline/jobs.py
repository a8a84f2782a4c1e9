"""Cells and kernel sets -> the plan of a workflow run, the file that its jobs hand on, and the matrices of its jobs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file, write_atomic
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.kernels.archive_manifest import shard_suffix
from wheelfactory.kernels.kernel_set import STORED_SET_PREFIX, KernelSet, stored_set_name
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.select import GITHUB_MATRIX_LIMIT, strategy_json


class CellJob(FrozenModel):
    """A cell to build, and the group of cells with which its wheel is uploaded."""

    id: str
    group: str
    kernel_set: str = ""
    """The kernel set that it links; empty for Triton."""


class SetJobs(FrozenModel):
    """A kernel set that cells of the plan link."""

    id: str
    archive_name: str
    """Its name on the shelf of the target."""
    shards: tuple[str, ...] = ()
    """``1/4`` to ``4/4``, to compile in this run; none where the set is kept already, or is left to the next run."""
    stored: bool = False


class WorkflowJobs(FrozenModel):
    """What a run is to do."""

    cells: tuple[CellJob, ...]
    kernel_sets: tuple[SetJobs, ...]

    def write(self, path: Path) -> None:
        """Write it for the later jobs."""
        write_atomic(path, (self.model_dump_json(indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> WorkflowJobs:
        """The inverse of `write`. Raises `InputError` for any other file."""
        data = read_file(path, InputError("cannot read the plan", str(path), _HINT))
        return parse_model(cls, data, InputError("not a plan", str(path), _HINT))


_HINT = "`wheelfactory ci jobs` writes it"


def output_lines(values: Mapping[str, object]) -> list[str]:
    """``name=value`` lines, as a step appends them to ``$GITHUB_OUTPUT``; true and false as expressions spell them."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    assert not any("\n" in text for text in texts.values())
    return [f"{name}={text}" for name, text in texts.items()]


MAX_GROUP_BYTES = 6 * 1000**3
"""What the wheels of a group may take together, each as large as it may be. A hosted runner has 14 GB (GitHub's docs,
guaranteed), and a download can be there twice: as it comes, and unpacked."""


def make_jobs(
    facts: Matrix,
    cells: Sequence[Cell],
    sets: Sequence[KernelSet],
    stored: Collection[str],
    shards: Mapping[str, Sequence[str]],
) -> WorkflowJobs:
    """The plan for these cells, whose kernel sets are `sets`; `kept` are the ids of those on the shelf.

    `shards` has the shards of each set that is not. As many sets are compiled in a run as one job's matrix takes; the
    others are left to the next run. Raises `InputError` if the wheels are more groups than that.
    """
    planned, room = [], GITHUB_MATRIX_LIMIT
    for kernel_set in sets:
        wanted = () if kernel_set.id in stored else tuple(shards[kernel_set.id])
        taken = wanted if len(wanted) <= room else ()
        room -= len(taken)
        name = stored_set_name(facts, kernel_set)
        planned.append(SetJobs(id=kernel_set.id, archive_name=name, shards=taken, stored=kernel_set.id in stored))
    set_of = {cell: kernel_set.id for kernel_set in sets for cell in kernel_set.cells}
    groups = assign_groups(facts, cells)
    return WorkflowJobs(
        cells=tuple(
            CellJob(id=cell.id, group=str(group), kernel_set=set_of.get(cell, ""))
            for cell, group in zip(cells, groups, strict=True)
        ),
        kernel_sets=tuple(planned),
    )


def assign_groups(facts: Matrix, cells: Sequence[Cell]) -> list[int]:
    """The group of each cell, so that a runner's disk holds the wheels of a group, counted from 0."""
    numbers: list[int] = []
    group, taken = 0, 0
    for cell in cells:
        backend = facts.flash_attn[cell.flash_attn].backend(cell.backend)
        assert backend  # the matrix has no cell of a backend that its release lacks
        largest = backend.wheel_bytes[-1]
        if taken and taken + largest > MAX_GROUP_BYTES:
            group, taken = group + 1, 0
        taken += largest
        numbers.append(group)
    if group >= GITHUB_MATRIX_LIMIT:
        which = f"{len(cells)} cells make {group + 1} groups of wheels"
        raise InputError("too many cells for one run", which, "select fewer with --only, and the others afterwards")
    return numbers


def kernel_entries(plan: WorkflowJobs) -> list[dict[str, str]]:
    """What the job that compiles is expanded to: an entry for each shard, with the artifact that it leaves."""
    return [
        {"set": planned.id, "shard": shard, "artifact": f"{STORED_SET_PREFIX}{planned.id}{shard_suffix(shard)}"}
        for planned in plan.kernel_sets
        for shard in planned.shards
    ]


def cell_entries(cells: Sequence[CellJob]) -> list[dict[str, str]]:
    """What the jobs that build are expanded to."""
    return [{"id": cell.id, "group": cell.group, "kernel-set": cell.kernel_set} for cell in cells]


def parse_group_cells(groups: str) -> tuple[Cell, ...]:
    """The cells of a `group_matrix`. Raises `InputError` for any other text."""
    try:
        return tuple(Cell.parse(text) for entry in json.loads(groups)["include"] for text in entry["cells"].split())
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InputError("not groups of cells", groups[:80], "`wheelfactory ci jobs` prints them as `groups`") from None


def group_matrix(cells: Sequence[CellJob]) -> str:
    """The matrix of the job that uploads: an entry for each group of wheels, with the cells that it may have."""
    groups: dict[str, list[str]] = {}
    for cell in cells:
        groups.setdefault(cell.group, []).append(cell.id)
    return strategy_json([{"group": group, "cells": " ".join(ids)} for group, ids in groups.items()])
