"""`wheelfactory status`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable

from wheelfactory.commands.options import (
    Environ,
    add_option,
    add_shared,
    print_messages,
    print_results,
    print_text,
    read_context,
)
from wheelfactory.commands.overview import local_build, overview_table, overview_text
from wheelfactory.commands.targets import DEFAULT_DIRECTORY, add_readonly_target, read_published_rows
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.terminal import TextTable
from wheelfactory.kernels.estimate import WORKFLOW_SHARDING
from wheelfactory.kernels.kernel_set import group_kernel_sets
from wheelfactory.kernels.set_estimates import estimate_sets, read_cost_model, source_reader
from wheelfactory.kernels.setup_env import ledger_path
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Context
from wheelfactory.release.manifest import WheelRow, available_cells, current_rows
from wheelfactory.site.coverage import Coverage, compute_coverage
from wheelfactory.site.coverage_output import cell_lines, coverage_json, coverage_markdown, summary_lines


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory status github:OWNER/REPO --only '*-torch2.9.1-*'"
    add_readonly_target(parser, is_optional=True)
    add_shared(parser, "--matrix FILE", "--only GLOB", "--cache DIR")
    form = parser.add_mutually_exclusive_group()
    add_option(form, "--all", "also print every cell and the reasons of excluded ones")
    add_option(form, "--json", "print one JSON object with counts, reasons and every cell")
    add_option(form, "--markdown", "print Markdown tables, for a page or a job summary")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print which selected cells are published; exit code 1 unless all are."""
    target, context = options.target or DEFAULT_DIRECTORY, read_context(options, environ)
    matrix, rows = context.matrix, read_published_rows(target, environ)
    coverage = compute_coverage(expand(matrix), current_rows(rows, matrix), options.only)
    if options.json:
        print_results(json.dumps(coverage_json(coverage, target)))
    elif options.markdown:
        print_results(*coverage_markdown(coverage).removesuffix("\n").split("\n"))
    else:
        unknown = "?: `wheelfactory plan` estimates the other kernel sets"
        print_text(*overview_text(_table(coverage, rows, context), unknown))
        print_text(*(cell_lines(coverage) if options.all else ()))
        print_text(*summary_lines(coverage, target, each_reason=options.all))
        if not options.all:
            print_messages("list cells and reasons with --all")
    return DONE if coverage.counts.published == coverage.counts.wanted else FAILED


def _table(coverage: Coverage, rows: Iterable[WheelRow], context: Context) -> TextTable:
    """The overview of the selected cells; hours only for releases whose kernel sources are in the cache."""
    cells = [covered.cell for covered in coverage.cells]
    sets = group_kernel_sets(context.matrix, cells)
    read_sources = source_reader(context.matrix.flash_attn, context.cache, context.environ, download=False)
    estimates = estimate_sets(sets, read_cost_model(None, ledger_path(context.cache)), WORKFLOW_SHARDING, read_sources)
    local_builds = {cell: local_build(context, cell) for cell in cells}
    return overview_table(local_builds, available_cells(rows, context.matrix), tuple(zip(sets, estimates, strict=True)))
