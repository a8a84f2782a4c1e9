"""Plan the jobs of a workflow run from cells and kernel sets: the jobs file, and the matrix of each job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from wheelfactory.core.cell import Cell, products_beside
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file, write_atomic
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.kernels.archive_format import shard_suffix
from wheelfactory.kernels.kernel_set import STORED_SET_PREFIX, KernelSet, find_host_sets, sets_of_cell, stored_set_name
from wheelfactory.matrix.expand import GITHUB_MATRIX_LIMIT, needs_runner, strategy_json
from wheelfactory.matrix.facts import Matrix
from wheelfactory.pipeline.batches import cut_batches


class CellJob(FrozenModel):
    """A cell to build, and the batch of cells that it is built, verified and uploaded with."""

    id: str
    batch: str
    kernel_sets: tuple[str, ...] = ()
    """Ids of the kernel sets that the cell links; empty for Triton, and if the cell's own job compiles its kernels."""
    replacement: int = 0
    """Which replacement of a published wheel it is (`manifest.next_replacements`); 0 for none."""


class KernelSetJobs(FrozenModel):
    """A kernel set that cells of the run link."""

    id: str
    archive_name: str
    """Name of the set on the archive host of the target."""
    shards: tuple[str, ...] = ()
    """Shards to compile in this run, ``1/4`` to ``4/4``; empty if the set is stored or left to the next run."""
    stored: bool = False
    host_set: str = ""
    """The set with the host code that this set of device code is executed with; empty for host code."""
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


def split_by_runner(cells: Iterable[Cell], runner: str) -> tuple[tuple[Cell, ...], tuple[Cell, ...]]:
    """Split cells into those to build and those that need a runner; `runner` is its label, empty if there is none."""
    cells = tuple(cells)
    unplanned = () if runner else tuple(filter(needs_runner, cells))
    return tuple(cell for cell in cells if runner or not needs_runner(cell)), unplanned


def make_jobs(
    matrix: Matrix,
    cells: Sequence[Cell],
    sets: Sequence[KernelSet],
    planned: Mapping[str, Sequence[str] | str],
    unplanned: Sequence[Cell],
    replacements: Mapping[str, int],
) -> WorkflowJobs:
    """Choose the jobs of a run for `cells`, which link the kernel sets `sets`: all sets of a cell, or none of them.

    `planned` has, by id, the shards of each set that the archive host lacks, or the reason why it has none. `unplanned`
    are the cells that need a runner; `replacements` says, by cell id, which replacement of a published wheel is built.
    Raises `InputError` if the cells make more batches than one GitHub matrix allows.
    """
    unavailable = {name: why for name, why in planned.items() if isinstance(why, str)}
    now = _fit_into_matrix({name: shards for name, shards in planned.items() if not isinstance(shards, str)})
    return WorkflowJobs(
        cells=tuple(
            CellJob(
                id=cell.id,
                batch=batch.name,
                kernel_sets=sets_of_cell(matrix, cell) if sets else (),
                replacement=replacements.get(cell.id, 0),
            )
            for batch in cut_batches(matrix, cells)
            for cell in batch.cells
        ),
        kernel_sets=tuple(
            KernelSetJobs(
                id=kernel_set.id,
                archive_name=stored_set_name(matrix, kernel_set),
                shards=now.get(kernel_set.id, ()),
                stored=kernel_set.id not in planned,
                host_set=next((each.id for each in find_host_sets(sets, kernel_set)), ""),
                unavailable=unavailable.get(kernel_set.id, ""),
            )
            for kernel_set in sets
        ),
        unplanned=tuple(cell.id for cell in unplanned),
    )


def _fit_into_matrix(shards: Mapping[str, Sequence[str]]) -> Mapping[str, tuple[str, ...]]:
    """Return the shards of the sets that fit into one GitHub matrix, by set id."""
    # GitHub never starts a job with a larger matrix, so a set that does not fit waits for the next run
    fitting, free_entries = {}, GITHUB_MATRIX_LIMIT
    for set_id, names in shards.items():
        if len(names) <= free_entries:
            fitting[set_id] = tuple(names)
            free_entries -= len(names)
    return fitting


def kernel_entries(jobs: WorkflowJobs) -> list[dict[str, str]]:
    """Return the matrix entries of the kernel job: one for each shard, with the name of its artifact."""
    return [
        {"set": set_jobs.id, "shard": shard, "artifact": f"{STORED_SET_PREFIX}{set_jobs.id}{shard_suffix(shard)}"}
        for set_jobs in jobs.kernel_sets
        for shard in set_jobs.shards
    ]


def proof_entries(jobs: WorkflowJobs) -> list[dict[str, str]]:
    """Return the matrix entries of the job that executes kernels: one for each set of device code with shards.

    Each has a pattern for the artifacts of the set and of its host code, which is downloaded if it is stored already.
    """
    stored = {set_jobs.id for set_jobs in jobs.kernel_sets if set_jobs.stored}
    return [
        {
            "set": set_jobs.id,
            "artifact": f"{STORED_SET_PREFIX}{set_jobs.id}",
            "artifacts": f"{STORED_SET_PREFIX}{{{set_jobs.id},{set_jobs.host_set}}}{{,.shard-*}}",
            "stored-host": set_jobs.host_set if set_jobs.host_set in stored else "",
        }
        for set_jobs in jobs.kernel_sets
        if set_jobs.shards and set_jobs.host_set
    ]


def batch_matrix(cells: Sequence[CellJob]) -> str:
    """Return the matrix of the jobs that build, verify and upload as JSON: one entry for each batch.

    A product that cells require is in the first batch with such a cell; any other is a batch of its own, so that
    neither waits for the other. Without cells there is no entry.
    """
    batches: dict[str, list[CellJob]] = {}
    for cell in cells:
        batches.setdefault(cell.batch, []).append(cell)
    cells_by_id = {cell.id: Cell.parse(cell.id) for cell in cells}
    for product in products_beside(cells_by_id.values()):
        requiring = (cell.batch for cell in cells if product in cells_by_id[cell.id].requires)
        batch = next(requiring, product)
        batches.setdefault(batch, []).append(CellJob(id=product, batch=batch))
    return strategy_json(
        [
            {
                "batch": batch,
                "cells": " ".join(f"{cell.id}:{cell.replacement}".removesuffix(":0") for cell in members),
                "kernel-sets": " ".join(sorted({name for cell in members for name in cell.kernel_sets})),
            }
            for batch, members in batches.items()
        ]
    )
