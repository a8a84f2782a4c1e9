"""`wheelfactory plan`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheelfactory.commands.options import (
    add_option,
    add_shared,
    positive_int,
    print_messages,
    print_results,
    print_text,
    read_context,
)
from wheelfactory.commands.overview import local_build, local_build_lines, overview_table, overview_text
from wheelfactory.commands.targets import DEFAULT_DIRECTORY, add_readonly_target, read_published_rows
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import DONE
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.core.wrap import count_text
from wheelfactory.kernels.estimate import WORKFLOW_SHARDING, Runners, Sharding
from wheelfactory.kernels.kernel_set import KernelSet, group_kernel_sets
from wheelfactory.kernels.set_estimates import (
    EstimateOrReason,
    estimate_sets,
    estimate_to_json,
    read_cost_model,
    render_estimate,
    render_total,
    shard_hours,
    source_reader,
    total_cluster_hours,
    total_cpu_hours,
)
from wheelfactory.kernels.setup_env import ledger_path
from wheelfactory.matrix.expand import GITHUB_MATRIX_LIMIT, expand, select_cells
from wheelfactory.matrix.facts import Context, Matrix
from wheelfactory.pipeline.batches import (
    ImageEstimate,
    RunForecast,
    cut_batches,
    estimate_images,
    predict_run,
    render_image_estimates,
)
from wheelfactory.pipeline.jobs import split_by_runner
from wheelfactory.release.manifest import WheelRow, available_cells, count_foldable, current_rows


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory plan --only 'fa2.8.3-rocm7.2-*' --shard-hours 2 --cores 16"
    add_readonly_target(parser, is_optional=True)
    add_shared(parser, "--matrix FILE", "--only GLOB", "--cache DIR")
    form = parser.add_mutually_exclusive_group()
    add_option(form, "--all", "also print every cell, kernel set and image")
    add_option(form, "--json", "print one JSON object")
    sharding_group = parser.add_mutually_exclusive_group()
    add_option(sharding_group, "--shards N", "split each kernel set into N shards", type=_shards)
    add_option(sharding_group, "--shard-hours HOURS", "use the fewest shards that each finish within HOURS", 5.0)
    add_option(parser, "--machines N", "number of machines that compile", Runners.count)
    add_option(parser, "--cores N", "cores of each machine", Runners.cores)
    add_option(parser, "--memory GIB", "memory of each machine", Runners.memory_gib)
    add_option(parser, "--disk GB", "disk of each machine, image included", Runners.disk_gb)
    what = "compile costs (default: for times those in the cache, for shards the built-in ones)"
    add_option(parser, "--measured-costs FILE", what)


def _shards(text: str) -> int:
    """Parse a number of shards that fits one GitHub matrix."""
    shards = positive_int(text)
    if shards > GITHUB_MATRIX_LIMIT:
        raise argparse.ArgumentTypeError(f"{shards} exceeds GitHub's limit of {GITHUB_MATRIX_LIMIT} jobs in one matrix")
    return shards


@dataclass(frozen=True)
class _Plan:
    """All that the command prints. Estimates are in the order of `sets`."""

    matrix: Matrix
    local_builds: Mapping[Cell, str]
    """The result of `local_build` for each selected cell."""
    sets: Sequence[KernelSet]
    sharding: Sharding
    estimates: Sequence[EstimateOrReason]
    images: Sequence[ImageEstimate]
    forecasts: Mapping[str, RunForecast]


def execute(options: argparse.Namespace) -> int:
    """Print a table of the selected cells, then what their kernel sets, images and workflow take."""
    runners = Runners(count=options.machines, cores=options.cores, memory_gib=options.memory, disk_gb=options.disk)
    sharding = Sharding(runners, options.shards, options.shard_hours)
    context = read_context(options)
    matrix = context.matrix
    local_builds = {cell: local_build(context, cell) for cell in select_cells(expand(matrix), options.only)}
    sets = group_kernel_sets(matrix, local_builds)
    cost_model = read_cost_model(options.measured_costs, ledger_path(context.cache))
    rows = None if options.json else _read_published(options.target, context)
    published = None if rows is None else available_cells(rows, matrix)
    read_sources = source_reader(context)
    with log_to_stderr():
        estimates = estimate_sets(sets, cost_model, sharding, read_sources)
    for_workflow = estimate_sets(sets, cost_model, WORKFLOW_SHARDING, read_sources)
    images = estimate_images(matrix, _kernel_bytes(sets, estimates), runners.disk_gb)
    forecasts = _forecast_workflow(matrix, local_builds, for_workflow)
    plan = _Plan(matrix, local_builds, sets, sharding, estimates, images, forecasts)
    if options.json:
        print_results(json.dumps(_to_json(plan)))
        return DONE
    table = overview_table(local_builds, published, tuple(zip(sets, estimates, strict=True)))
    print_text(*overview_text(table, "?: kernel sets without an estimate"))
    print_text(*local_build_lines(local_builds, context.host), *_folding_lines(local_builds, rows or ()))
    print_text(*(_each(plan) if options.all else ()), *_summary(plan, each_image=options.all))
    if published is None:
        print_messages(f"published: unknown, as there is no {DEFAULT_DIRECTORY} here; name a release as TARGET")
    if not options.all:
        print_messages("list cells, kernel sets and images with --all")
    return DONE


def _folding_lines(cells: Collection[Cell], rows: Iterable[WheelRow]) -> Iterator[str]:
    """How many published wheels others could replace, if any; nothing is folded."""
    published = [row for row in rows if row.yanked is None and row.cell in {cell.id for cell in cells}]
    if foldable := count_foldable(published):
        why = "the symbols of another wheel are in their torch too"
        yield f"folding      would save {foldable} of {count_text(len(published), 'published wheel')}: {why}"


def _each(plan: _Plan) -> Iterator[str]:
    """A line for each cell, then a block for each kernel set."""
    longest = max((len(cell.id) for cell in plan.local_builds), default=0)
    for cell, builds in plan.local_builds.items():
        yield f"{cell.id:<{longest}}  {','.join(plan.matrix.archs(cell))}  {builds}"
    for kernel_set, estimate in zip(plan.sets, plan.estimates, strict=True):
        yield from render_estimate(kernel_set, estimate, plan.sharding.runners)


def _summary(plan: _Plan, *, each_image: bool) -> Iterator[str]:
    yield from render_total(plan.sets, plan.estimates, plan.sharding.runners)
    yield from render_image_estimates(plan.images, plan.sharding.runners.disk_gb, each=each_image)
    yield "workflow of a tag, without and with a runner of your own for CK cells"
    yield from (f"  {name:<16}  {forecast}" for name, forecast in plan.forecasts.items())
    if unknown := sum(isinstance(estimate, str) for estimate in plan.estimates):
        yield f"  {count_text(unknown, 'kernel set')} without an estimate not counted"


def _to_json(plan: _Plan) -> dict[str, Any]:
    estimated = zip(plan.sets, plan.estimates, strict=True)
    return {
        "cells": [_cell_entry(plan.matrix, cell, builds) for cell, builds in plan.local_builds.items()],
        "kernel-sets": [estimate_to_json(kernel_set, estimate, plan.sharding) for kernel_set, estimate in estimated],
        "kernel-cpu-hours": round(total_cpu_hours(plan.estimates), 2),
        "cluster-hours": round(total_cluster_hours(plan.estimates), 2),
        "images": [image.to_json for image in plan.images],
        "workflow": {name.replace(" ", "-"): forecast.to_json for name, forecast in plan.forecasts.items()},
    }


def _read_published(target: str | None, context: Context) -> tuple[WheelRow, ...] | None:
    """The current rows of a target; None without a target if there is no `DEFAULT_DIRECTORY`."""
    if target is None and not Path(DEFAULT_DIRECTORY).is_dir():
        return None
    return current_rows(read_published_rows(target or DEFAULT_DIRECTORY, context.environ), context.matrix)


def _forecast_workflow(
    matrix: Matrix, cells: Collection[Cell], estimates: Iterable[EstimateOrReason]
) -> Mapping[str, RunForecast]:
    """Predict the workflow of a tag, by whether it has a runner for CK cells."""
    cells = tuple(cells)
    proofs = sum(bool(kernel_set.archs) for kernel_set in group_kernel_sets(matrix, cells))
    without = predict_run(cut_batches(matrix, split_by_runner(cells, "")[0]), ())
    own = predict_run(cut_batches(matrix, cells), shard_hours(estimates), proofs)
    return {"without a runner": without, "with a runner": own}


def _kernel_bytes(sets: Sequence[KernelSet], estimates: Sequence[EstimateOrReason]) -> Mapping[Cell, int]:
    """Return the disk for compiling the kernel sets of each CK cell; a set without an estimate counts nothing."""
    # a runner that compiles them itself must hold them all at once, beside the image
    found: Counter[Cell] = Counter()
    for kernel_set, estimate in zip(sets, estimates, strict=True):
        for cell in kernel_set.cells:
            found[cell] += 0 if isinstance(estimate, str) else estimate.disk_bytes
    return found


def _cell_entry(matrix: Matrix, cell: Cell, builds: str) -> dict[str, Any]:
    slim = matrix.rocm[cell.rocm].slim
    return {
        "id": cell.id,
        "archs": matrix.archs(cell),
        "image": matrix.image(cell).tag,
        "slim": slim and slim.tag,
        "local_build": builds,
    }
