"""`wheelfactory ci jobs`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from wheelfactory.commands.options import (
    Environ,
    add_cache,
    add_matrix,
    add_only,
    prepare_cache,
    print_messages,
    print_results,
)
from wheelfactory.commands.targets import add_target, open_archive_host, open_publisher
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.kernels.estimate import Runners
from wheelfactory.kernels.kernel_set import KernelSet, group_kernel_sets, stored_set_name
from wheelfactory.kernels.set_estimates import Sharding, estimate_sets, read_cost_model
from wheelfactory.kernels.setup_env import ledger_path
from wheelfactory.matrix.expand import Expansion, expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.select import require_in_matrix, select_cells, strategy_json, unpublished_cells
from wheelfactory.pipeline.jobs import WorkflowJobs, cell_entries, group_matrix, kernel_entries, make_jobs, output_lines
from wheelfactory.release.manifest import published_cells

SHARD_HOURS = 4.0
"""What a shard is predicted to take on a hosted runner: an hour less than the job is given, as it is a prediction."""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_target(parser)
    which = parser.add_mutually_exclusive_group()
    add_only(which)
    which.add_argument(
        "--versions", nargs=4, metavar=("FLASH_ATTN", "PYTHON", "TORCH", "ROCM"), help="the cells of four versions"
    )
    parser.add_argument(
        "--triton-too", choices=["true", "false"], default="false", help="with --versions: the Triton cell beside CK"
    )
    parser.add_argument(
        "--plan", type=Path, metavar="FILE", help="write the plan there, for `ci collect` and `ci reconcile`"
    )
    add_matrix(parser)
    add_cache(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print what the jobs of a workflow run are expanded to, as lines for ``$GITHUB_OUTPUT``."""
    if options.triton_too == "true" and not options.versions:
        raise InputError("bad arguments", "--triton-too without --versions", "--only selects Triton cells by their id")
    matrix, cache = load_matrix(options.matrix), prepare_cache(options, environ)
    expansion = expand(matrix)
    selected = _cells_of(expansion, options) if options.versions else select_cells(expansion, options.only)
    with log_to_stderr():
        cells = unpublished_cells(selected, published_cells(open_publisher(options.target, environ).rows()))
    print_messages(f"{len(cells)} cells to build, {len(selected) - len(cells)} are published" if cells else _NOTHING)
    sets = group_kernel_sets(matrix, cells)
    with log_to_stderr():
        shelf = open_archive_host(options.target, environ)
        kept = frozenset(kernel_set.id for kernel_set in sets if shelf.has(stored_set_name(matrix, kernel_set)))
    if options.versions:  # a cell by hand links kernels that are kept, and compiles them itself where they are not
        plan = make_jobs(matrix, cells, [kernel_set for kernel_set in sets if kernel_set.id in kept], kept, {})
    else:
        plan = _plan(matrix, cells, sets, kept, cache, environ)
    if options.plan:
        plan.write(options.plan)
    values: dict[str, object] = {"count": len(plan.cells)}
    if options.versions:  # one level of cells; otherwise `ci collect` gives them, when their kernels are there
        values |= {"cells": strategy_json(cell_entries(plan.cells)), "groups": group_matrix(plan.cells)}
    else:
        kernels = kernel_entries(plan)
        values |= {"kernel-count": len(kernels), "kernels": strategy_json(kernels)}
    print_results(*output_lines(values))
    return DONE


_NOTHING = "nothing to build: every cell selected is published"


def _cells_of(expansion: Expansion, options: argparse.Namespace) -> tuple[Cell, ...]:
    """The CK cell of four versions, and the Triton cell if asked for. Raises `InputError` if one is not built."""
    flash_attn, python, torch, rocm = options.versions
    backends = (Backend.CK, Backend.TRITON) if options.triton_too == "true" else (Backend.CK,)
    return tuple(
        require_in_matrix(expansion, Cell.from_axes(flash_attn, python, torch, rocm, backend), python)
        for backend in backends
    )


def _plan(
    matrix: Matrix,
    cells: Sequence[Cell],
    sets: Sequence[KernelSet],
    kept: frozenset[str],
    cache: Path,
    environ: Environ,
) -> WorkflowJobs:
    missing = [kernel_set for kernel_set in sets if kernel_set.id not in kept]
    knowledge = read_cost_model(None, ledger_path(cache))
    outlooks = estimate_sets(
        missing,
        knowledge,
        Sharding(Runners(), None, SHARD_HOURS),
        releases=matrix.flash_attn,
        cache=cache,
        environ=environ,
    )
    shards: dict[str, tuple[str, ...]] = {}
    for kernel_set, outlook in zip(missing, outlooks, strict=True):
        if isinstance(outlook, str):
            raise InputError(
                "cannot tell what to compile",
                f"{kernel_set.id}: {outlook}",
                "look after the network (PIP_INDEX_URL names another index), then run it again",
            )
        shards[kernel_set.id] = outlook.shards
        hours = outlook.cpu_s / 3600
        print_messages(f"kernels to compile: {kernel_set.id}, {hours:.1f} CPU hours in {len(outlook.shards)} shards")
    return make_jobs(matrix, cells, sets, kept, shards)
