"""`wheelfactory ci jobs`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from wheelfactory.commands.options import Environ, add_cache, add_matrix, add_only, cache_of, show, tell
from wheelfactory.commands.targets import add_target, publisher_of, shelf_of
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.progress import announcing
from wheelfactory.kernels.forecast import Runners
from wheelfactory.kernels.handover import ledger_path
from wheelfactory.kernels.kernel_set import KernelSet, kept_name, kernel_sets
from wheelfactory.kernels.outlook import Wish, make_outlooks, read_knowledge
from wheelfactory.matrix.expand import Expansion, expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.select import require, select, strategy, unpublished
from wheelfactory.pipeline.jobs import Plan, cell_entries, group_strategy, kernel_entries, make_plan, outputs
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
        "--plan", type=Path, metavar="FILE", help="write the plan there, for `ci gather` and `ci account`"
    )
    add_matrix(parser)
    add_cache(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print what the jobs of a workflow run are expanded to, as lines for ``$GITHUB_OUTPUT``."""
    if options.triton_too == "true" and not options.versions:
        raise InputError("bad arguments", "--triton-too without --versions", "--only selects Triton cells by their id")
    matrix, cache = load_matrix(options.matrix), cache_of(options, environ)
    expansion = expand(matrix)
    selected = _cells_of(expansion, options) if options.versions else select(expansion, options.only)
    with announcing():
        cells = unpublished(selected, published_cells(publisher_of(options.target, environ).rows()))
    tell(f"{len(cells)} cells to build, {len(selected) - len(cells)} are published" if cells else _NOTHING)
    sets = kernel_sets(matrix, cells)
    with announcing():
        shelf = shelf_of(options.target, environ)
        kept = frozenset(kernel_set.id for kernel_set in sets if shelf.has(kept_name(matrix, kernel_set)))
    if options.versions:  # a cell by hand links kernels that are kept, and compiles them itself where they are not
        plan = make_plan(matrix, cells, [kernel_set for kernel_set in sets if kernel_set.id in kept], kept, {})
    else:
        plan = _plan(matrix, cells, sets, kept, cache, environ)
    if options.plan:
        plan.write(options.plan)
    values: dict[str, object] = {"count": len(plan.cells)}
    if options.versions:  # one level of cells; otherwise `ci gather` gives them, when their kernels are there
        values |= {"cells": strategy(cell_entries(plan.cells)), "groups": group_strategy(plan.cells)}
    else:
        kernels = kernel_entries(plan)
        values |= {"kernel-count": len(kernels), "kernels": strategy(kernels)}
    show(*outputs(values))
    return DONE


_NOTHING = "nothing to build: every cell selected is published"


def _cells_of(expansion: Expansion, options: argparse.Namespace) -> tuple[Cell, ...]:
    """The CK cell of four versions, and the Triton cell if asked for. Raises `InputError` if one is not built."""
    flash_attn, python, torch, rocm = options.versions
    backends = (Backend.CK, Backend.TRITON) if options.triton_too == "true" else (Backend.CK,)
    return tuple(require(expansion, Cell.of(flash_attn, python, torch, rocm, backend), python) for backend in backends)


def _plan(
    matrix: Matrix,
    cells: Sequence[Cell],
    sets: Sequence[KernelSet],
    kept: frozenset[str],
    cache: Path,
    environ: Environ,
) -> Plan:
    missing = [kernel_set for kernel_set in sets if kernel_set.id not in kept]
    knowledge = read_knowledge(None, ledger_path(cache))
    outlooks = make_outlooks(
        missing,
        knowledge,
        Wish(Runners(), None, SHARD_HOURS),
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
        tell(f"kernels to compile: {kernel_set.id}, {hours:.1f} CPU hours in {len(outlook.shards)} shards")
    return make_plan(matrix, cells, sets, kept, shards)
