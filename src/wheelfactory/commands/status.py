"""`wheelfactory status`: which cells are published, missing or excluded, as text, Markdown or JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping

from wheelfactory.commands.options import (
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
from wheelfactory.core.wrap import count_text
from wheelfactory.kernels.estimate import WORKFLOW_SHARDING
from wheelfactory.kernels.kernel_set import group_kernel_sets
from wheelfactory.kernels.set_estimates import estimate_sets, read_cost_model, source_reader
from wheelfactory.kernels.setup_env import ledger_path
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Context
from wheelfactory.release.manifest import WheelRow, available_cells, current_rows
from wheelfactory.site.coverage import CellState, Coverage, CoverageCounts, CoveredCell, compute_coverage, runner_note
from wheelfactory.site.markdown import code_span, details, escape, table

SHOWN_REASONS = 10
"""Number of reasons shown; the others are counted. A full matrix has some 80."""


def cell_lines(coverage: Coverage) -> list[str]:
    """One line per cell: its id, its state, and why it is yanked or not verified."""
    longest = max((len(covered.cell.id) for covered in coverage.cells), default=0)
    return [f"{covered.cell.id:<{longest}}  {covered.state.text}{_note(covered)}" for covered in coverage.cells]


def _note(covered: CoveredCell) -> str:
    if covered.unverified_reason:
        return f", {covered.unverified_reason}"
    return f": {covered.yanked}" if covered.yanked is not None else ""


def summary_lines(coverage: Coverage, target: str, *, each_reason: bool = True) -> list[str]:
    """The counts as text. `target` names the release; with `each_reason`, the most common reasons are listed."""
    counts = coverage.counts
    states = ((counts.unverified, "not verified"), (counts.missing, "missing"), (counts.yanked, "yanked"))
    others = [f"{number} {state}" for number, state in states if number]
    wanted = count_text(counts.wanted, "cell")
    lines = [", ".join([f"published in {target}: {counts.published} of {wanted}", *others])]
    lines += [runner_note(counts.needs_runner)] if counts.needs_runner else []
    if counts.excluded:
        lines.append(f"excluded: {_excluded(counts)}")
    if each_reason:
        lines += [f"  {number:5}  {reason}" for reason, number in counts.excluded[:SHOWN_REASONS]]
        if rest := counts.excluded[SHOWN_REASONS:]:
            combinations = sum(number for _, number in rest)
            lines.append(f"         {combinations} for {count_text(len(rest), 'more reason')} (see --json)")
    lines += [f"published, but no longer in the matrix: {cell}" for cell in coverage.unwanted]
    return lines


def _excluded(counts: CoverageCounts) -> str:
    reasons = count_text(len(counts.excluded), "reason")
    return f"{count_text(counts.excluded_combinations, 'combination')}, for {reasons}"


def coverage_json(coverage: Coverage, target: str) -> dict[str, object]:
    """The coverage as a JSON object: counts in total, by backend, and by (ROCm, torch); every reason and every cell."""
    backends = coverage.counts_by(lambda cell: str(cell.backend))
    squares = coverage.counts_by(lambda cell: (str(cell.backend), cell.rocm, cell.torch))
    return {
        "target": target,
        **_numbers(coverage.counts),
        "excluded": _reasons(coverage.counts),
        "backends": {backend: _numbers(counts) for backend, counts in backends.items()},
        "squares": [
            {"backend": backend, "rocm": rocm, "torch": torch, **_numbers(counts), "excluded": _reasons(counts)}
            for (backend, rocm, torch), counts in squares.items()
        ],
        "cells": [
            {
                "id": covered.cell.id,
                "state": str(covered.state),
                "filename": covered.row.filename if covered.row else None,
                "yanked": covered.yanked,
                "unverified": covered.unverified_reason or None,
            }
            for covered in coverage.cells
        ],
        "unwanted": list(coverage.unwanted),
    }


def _numbers(counts: CoverageCounts) -> dict[str, int]:
    return {
        "wanted": counts.wanted,
        "published": counts.published,
        "unverified": counts.unverified,
        "yanked": counts.yanked,
        "missing": counts.missing,
        "needs-runner": counts.needs_runner,
        "combinations-excluded": counts.excluded_combinations,
    }


def _reasons(counts: CoverageCounts) -> list[dict[str, object]]:
    return [{"reason": reason, "combinations": number} for reason, number in counts.excluded]


def coverage_markdown(coverage: Coverage) -> str:
    """The coverage as Markdown for a page or a job summary."""
    header = ("", "wanted", "published", "not verified", "yanked", "missing", "needs a runner", "excluded combinations")
    counts = coverage.counts
    backends = coverage.counts_by(lambda cell: str(cell.backend))
    squares = coverage.counts_by(lambda cell: f"ROCm {cell.rocm}, torch {cell.torch}")
    wanted = {square: own for square, own in squares.items() if own.wanted}
    lines = ["## Coverage", "", *table(header, _counts({**backends, "**all**": counts})), ""]
    lines += [*table(header, _counts(wanted)), ""]
    notes = [(code_span(covered.cell.id), covered.yanked, covered.unverified_reason) for covered in coverage.cells]
    lines += [f"- {cell} is yanked: {escape(yanked)}" for cell, yanked, _ in notes if yanked is not None]
    lines += [f"- {code_span(cell)} is published, but no longer in the matrix" for cell in coverage.unwanted]
    not_verified = [f"- {cell}: {escape(reason)}" for cell, _, reason in notes if reason]
    reasons = [(str(number), escape(reason)) for reason, number in counts.excluded]
    folded = {
        f"{count_text(len(not_verified), 'cell')} not verified": not_verified,
        count_text(counts.missing, "missing cell"): _cell_list(coverage, CellState.MISSING),
        runner_note(counts.needs_runner): _cell_list(coverage, CellState.NEEDS_RUNNER),
        f"Excluded: {_excluded(counts)}": table(("combinations", "reason"), reasons) if reasons else [],
    }
    for summary, listed in folded.items():
        lines += ["", *details(summary, listed)] if listed else []
    return "\n".join([*lines, ""])


def _cell_list(coverage: Coverage, state: CellState) -> list[str]:
    return [f"- {code_span(covered.cell.id)}" for covered in coverage.cells if covered.state is state]


def _counts(counts_by_name: Mapping[str, CoverageCounts]) -> list[list[str]]:
    return [[name, *map(str, _numbers(counts).values())] for name, counts in counts_by_name.items()]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory status github:OWNER/REPO --only '*-torch2.9.1-*'"
    add_readonly_target(parser, is_optional=True)
    add_shared(parser, "--matrix FILE", "--only GLOB", "--cache DIR")
    form = parser.add_mutually_exclusive_group()
    add_option(form, "--all", "also print every cell and the reasons of excluded ones")
    add_option(form, "--json", "print one JSON object with counts, reasons and every cell")
    add_option(form, "--markdown", "print Markdown tables, for a page or a job summary")


def execute(options: argparse.Namespace) -> int:
    """Print which selected cells are published; exit code 1 unless all are."""
    target, context = options.target or DEFAULT_DIRECTORY, read_context(options)
    matrix, rows = context.matrix, read_published_rows(target, options.environ)
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
    read_sources = source_reader(context, download=False)
    estimates = estimate_sets(sets, read_cost_model(None, ledger_path(context.cache)), WORKFLOW_SHARDING, read_sources)
    local_builds = {cell: local_build(context, cell) for cell in cells}
    return overview_table(local_builds, available_cells(rows, context.matrix), tuple(zip(sets, estimates, strict=True)))
