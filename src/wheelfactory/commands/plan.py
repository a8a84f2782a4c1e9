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
    WORKFLOW_SHARDING,
    Sharding,
    estimate_sets,
    estimate_to_json,
    read_cost_model,
    render_estimate,
    shard_hours,
)
from wheelfactory.kernels.setup_env import ledger_path
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.select import GITHUB_MATRIX_LIMIT, select_cells
from wheelfactory.pipeline.batches import cut_batches, predict_run
from wheelfactory.pipeline.jobs import split_by_runner
from wheelfactory.site.markdown import count_text


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory plan --only 'fa2.8.3-rocm7.2-*' --budget 2 --cores 16"
    add_matrix(parser)
    add_only(parser)
    add_cache(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object with cells, kernel-sets, images and workflow"
    )
    sharding_group = parser.add_mutually_exclusive_group()
    sharding_group.add_argument("--shards", type=_shards, metavar="N", help="split each kernel set into N shards")
    sharding_group.add_argument(
        "--budget",
        type=positive_number,
        default="5",
        metavar="HOURS",
        help="use the fewest shards that each finish within HOURS (default: 5)",
    )
    for name, kind, default, what in (
        ("--runners", positive_int, Runners.count, "number of machines that compile"),
        ("--cores", positive_int, Runners.cores, "cores of each machine"),
        ("--memory", positive_number, Runners.memory_gib, "memory of each machine, in GiB"),
        ("--disk", positive_number, Runners.disk_gb, "disk of each machine, in GB, image included"),
    ):
        parser.add_argument(name, type=kind, default=default, metavar="N", help=f"{what} (default: {default:g})")
    parser.add_argument(
        "--measured-costs",
        type=Path,
        metavar="FILE",
        help="file of measured compile costs (default: the cache's costs for estimates, built-in costs for sharding)",
    )


def _shards(text: str) -> int:
    """Parse a number of shards that fits one GitHub matrix."""
    shards = positive_int(text)
    if shards > GITHUB_MATRIX_LIMIT:
        raise argparse.ArgumentTypeError(f"{shards} exceeds GitHub's limit of {GITHUB_MATRIX_LIMIT} jobs in one matrix")
    return shards


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print each selected cell with its archs and whether it builds here, then an estimate for each kernel set."""
    runners = Runners(count=options.runners, cores=options.cores, memory_gib=options.memory, disk_gb=options.disk)
    sharding = Sharding(runners, options.shards, options.budget)
    matrix, host, cache = load_matrix(options.matrix), read_host(environ), prepare_cache(options, environ)
    cells = select_cells(expand(matrix), options.only)
    entries = [_cell_entry(matrix, host, environ, cell) for cell in cells]
    if not options.json:
        print_results(*(f"{entry['id']}  {','.join(entry['archs'])}  {entry['local_build']}" for entry in entries))
        here = sum(entry["local_build"].startswith("builds here") for entry in entries)
        print_messages(
            f"{len(entries)} cells, {here} of them build here ({host.cores} cores, "
            f"{host.memory_gib:.0f} GiB free, ROCm {host.rocm or 'not found'})"
        )
    sets = group_kernel_sets(matrix, cells)
    cost_model = read_cost_model(options.measured_costs, ledger_path(cache))
    estimates = estimate_sets(sets, cost_model, sharding, releases=matrix.flash_attn, cache=cache, environ=environ)
    # a runner's disk must hold the image and the kernels of the largest set at once
    kernel_bytes = {
        cell: 0 if isinstance(estimate, str) else estimate.disk_bytes
        for kernel_set, estimate in zip(sets, estimates, strict=True)
        for cell in kernel_set.cells
    }
    images = estimate_images(matrix, kernel_bytes, runners.disk_gb)
    for_workflow = estimate_sets(
        sets, cost_model, WORKFLOW_SHARDING, releases=matrix.flash_attn, cache=cache, environ=environ
    )
    forecasts = {
        "without a runner": predict_run(cut_batches(matrix, split_by_runner(cells, "")[0]), ()),
        "with a runner": predict_run(cut_batches(matrix, cells), shard_hours(for_workflow)),
    }
    if options.json:
        kernels = [
            estimate_to_json(kernel_set, estimate, sharding)
            for kernel_set, estimate in zip(sets, estimates, strict=True)
        ]
        content = {
            "cells": entries,
            "kernel-sets": kernels,
            "images": [image.to_json for image in images],
            "workflow": {name.replace(" ", "-"): forecast.to_json for name, forecast in forecasts.items()},
        }
        print_results(json.dumps(content))
        return DONE
    for kernel_set, estimate in zip(sets, estimates, strict=True):
        print_results(*render_estimate(kernel_set, estimate, runners))
    print_results(*render_image_estimates(images, runners.disk_gb))
    print_results("workflow of a tag, for CK cells on a runner of your own")
    print_results(*(f"  {name:<16}  {forecast}" for name, forecast in forecasts.items()))
    if unknown := sum(isinstance(estimate, str) for estimate in for_workflow):
        print_results(f"  {count_text(unknown, 'kernel set')} without an estimate not counted")
    return DONE


def _cell_entry(matrix: Matrix, host: Host, environ: Environ, cell: Cell) -> dict[str, Any]:
    try:
        make_recipe(matrix, cell, host, environ, local_build=False)
        local_build = "builds here"
    except BuildError as error:
        has_engine = _has_engine(environ.get("DOCKER_HOST", ""), environ.get("XDG_RUNTIME_DIR", ""))
        local_build = "builds here in a container" if has_engine else error.which
    slim = matrix.rocm[cell.rocm].slim
    return {
        "id": cell.id,
        "archs": matrix.archs(cell),
        "image": matrix.image(cell).tag,
        "slim": slim and slim.tag,
        "local_build": local_build,
    }


@cache  # connecting is slow, and the answer is the same for every cell
def _has_engine(docker_host: str, runtime_dir: str) -> bool:
    # imported late: takes a third of a second, and only cells that do not build here need it
    from wheelfactory.build.container.engine import connect_engine

    try:
        connect_engine({"DOCKER_HOST": docker_host, "XDG_RUNTIME_DIR": runtime_dir})
    except BuildError:
        return False
    return True
