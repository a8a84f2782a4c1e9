"""`wheelfactory plan`."""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path
from typing import Any

from wheelfactory.build.container.disk_fit import estimate_images, render_image_estimates
from wheelfactory.build.recipe import make_recipe
from wheelfactory.commands.options import (
    Environ,
    add_cache,
    add_matrix,
    add_only,
    positive_int,
    positive_number,
    prepare_cache,
    print_messages,
    print_results,
)
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import DONE, BuildError
from wheelfactory.core.host import Host, read_host
from wheelfactory.kernels.estimate import Runners
from wheelfactory.kernels.kernel_set import group_kernel_sets
from wheelfactory.kernels.set_estimates import (
    Sharding,
    estimate_sets,
    estimate_to_json,
    read_cost_model,
    render_estimate,
)
from wheelfactory.kernels.setup_env import ledger_path
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.select import GITHUB_MATRIX_LIMIT, select_cells


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_matrix(parser)
    add_only(parser)
    add_cache(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object with cells, kernel-sets and images")
    cutting = parser.add_mutually_exclusive_group()
    cutting.add_argument("--shards", type=_shards, metavar="N", help="cut each kernel set into N shards")
    cutting.add_argument(
        "--budget",
        type=positive_number,
        default="5",
        metavar="HOURS",
        help="or into as few as end in time (default: 5)",
    )
    for name, kind, default, what in (
        ("--runners", positive_int, Runners.count, "machines that compile at once"),
        ("--cores", positive_int, Runners.cores, "cores of each"),
        ("--memory", positive_number, Runners.memory_gib, "GiB of each"),
        ("--disk", positive_number, Runners.disk_gb, "GB of each, which hold the image as well"),
    ):
        parser.add_argument(name, type=kind, default=default, metavar="N", help=f"{what} (default: {default:g})")
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="measured compiles to predict and to cut by (default: those of the cache, to predict by alone)",
    )


def _shards(text: str) -> int:
    """A number of shards that one job's matrix can hold."""
    shards = positive_int(text)
    if shards > GITHUB_MATRIX_LIMIT:
        raise argparse.ArgumentTypeError(f"{shards} is more than the {GITHUB_MATRIX_LIMIT} that a GitHub matrix takes")
    return shards


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print each selected cell, its archs and whether it can be built here, then what each kernel set will take."""
    runners = Runners(count=options.runners, cores=options.cores, memory_gib=options.memory, disk_gb=options.disk)
    wish = Sharding(runners, options.shards, options.budget)
    matrix, host, cache = load_matrix(options.matrix), read_host(environ), prepare_cache(options, environ)
    cells = select_cells(expand(matrix), options.only)
    entries = [_plan_entry(matrix, host, environ, cell) for cell in cells]
    if not options.json:
        print_results(*(f"{entry['id']}  {','.join(entry['archs'])}  {entry['here']}" for entry in entries))
        here = sum(entry["here"].startswith("builds here") for entry in entries)
        print_messages(
            f"{len(entries)} cells, {here} of them can be built here ({host.cores} cores, "
            f"{host.memory_gib:.0f} GiB free, ROCm {host.rocm or 'not found'})"
        )
    sets = group_kernel_sets(matrix, cells)
    knowledge = read_cost_model(options.ledger, ledger_path(cache))
    outlooks = estimate_sets(sets, knowledge, wish, releases=matrix.flash_attn, cache=cache, environ=environ)
    # the images in which these sets and their cells can be built, and whether the runners' disk holds each
    kernel_bytes = {
        cell: 0 if isinstance(outlook, str) else outlook.disk_bytes
        for kernel_set, outlook in zip(sets, outlooks, strict=True)
        for cell in kernel_set.cells
    }
    images = estimate_images(matrix, kernel_bytes, runners.disk_gb)
    if options.json:
        kernels = [
            estimate_to_json(kernel_set, outlook, wish) for kernel_set, outlook in zip(sets, outlooks, strict=True)
        ]
        print_results(
            json.dumps({"cells": entries, "kernel-sets": kernels, "images": [image.to_json for image in images]})
        )
        return DONE
    for kernel_set, outlook in zip(sets, outlooks, strict=True):
        print_results(*render_estimate(kernel_set, outlook, runners))
    print_results(*render_image_estimates(images, runners.disk_gb))
    return DONE


def _plan_entry(facts: Matrix, host: Host, environ: Environ, cell: Cell) -> dict[str, Any]:
    try:
        make_recipe(facts, cell, host, environ, local_build=False)
        here = "builds here"
    except BuildError as error:
        found = _has_engine(environ.get("DOCKER_HOST", ""), environ.get("XDG_RUNTIME_DIR", ""))
        here = "builds here in a container" if found else error.which
    slim = facts.rocm[cell.rocm].slim
    return {
        "id": cell.id,
        "archs": facts.archs(cell),
        "image": facts.image(cell).tag,
        "slim": slim and slim.tag,
        "here": here,
    }


@cache
def _has_engine(host: str, runtime: str) -> bool:
    # takes a third of a second to import, and is not always wanted
    from wheelfactory.build.container.engine import connect_engine

    try:
        connect_engine({"DOCKER_HOST": host, "XDG_RUNTIME_DIR": runtime})
    except BuildError:
        return False
    return True
