"""`wheelfactory run`."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from wheelfactory.commands.executor_options import (
    add_executor,
    add_kernels,
    has_compiled_cell,
    open_executor,
    read_scope,
    use_store,
)
from wheelfactory.commands.options import (
    add_dest,
    add_shared,
    as_directory,
    find_hint,
    print_messages,
    print_results,
    print_text,
    read_context,
)
from wheelfactory.core.errors import BUILD_FAILED, DONE, NOTHING_TO_DO
from wheelfactory.core.files import lock_folder, remove_scratch
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.expand import expand, select_cells
from wheelfactory.matrix.facts import Matrix
from wheelfactory.pipeline.build import Failure
from wheelfactory.pipeline.run import Worklist, exit_code, make_worklist, run_worklist
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.index import directory_install_lines, pick_smoke_test_wheel, smoke_test_line
from wheelfactory.verify.gates import parse_extended


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory run --only 'fa2.8.3-*-py3-triton' --dest wheelhouse"
    add_shared(parser, "--matrix FILE", "--only GLOB", "--cache DIR", "--cache-size SIZE", "--quick", "--extended LIST")
    add_kernels(parser, publishes=True)
    add_executor(parser)
    add_dest(parser, "wheelhouse", "publish into this release directory")


def execute(options: argparse.Namespace) -> int:
    """Build, verify and publish the selected cells into a directory with an index; print install commands."""
    started = time.time()  # first: --budget includes reading the matrix and preparing images
    extended = tuple(parse_extended(options.extended))
    context = read_context(options)
    matrix, cache = context.matrix, context.cache
    cells = select_cells(expand(matrix), options.only)
    scope = read_scope(options, started)
    publisher, compiled = DirectoryPublisher(as_directory(options.dest)), has_compiled_cell(cells)
    with (
        lock_folder(publisher.folder),
        use_store(cache, options.cache_size, compiled=compiled),
        open_executor(options, compiled=compiled, context=context) as executor,
    ):
        # under the lock, so these are leftovers of a killed run
        remove_scratch(publisher.folder)
        remove_scratch(cache)
        worklist = make_worklist(executor, cells, publisher, quick=options.quick, context=context)
        before = publisher.rows()
        failures = run_worklist(executor, worklist, publisher, extended, scope, quick=options.quick, context=context)
    # a wheel without a cell, such as flash-attention-amd, can be all that was missing
    has_added = publisher.rows() != before
    if not (worklist.to_build or worklist.to_verify or failures or has_added) and worklist.published:
        print_messages(f"nothing to build: {count_text(len(worklist.published), 'selected cell')} already published")
    _report(worklist, failures, publisher, matrix if context.host.rocm is None else None)
    if failures or worklist.unbuildable:
        return exit_code(failures) or BUILD_FAILED
    return DONE if worklist.to_build or worklist.to_verify or has_added else NOTHING_TO_DO


def _report(
    worklist: Worklist, failures: Sequence[Failure], publisher: DirectoryPublisher, without_rocm: Matrix | None
) -> None:
    rows = publisher.rows()
    if rows:
        print_text(f"wheels: {publisher.wheels_dir} ({sum(row.cell is not None for row in rows)})")
        reasons = Counter(filter(None, (unverified_reason(row) for row in rows if row.cell and row.yanked is None)))
        for reason, number in reasons.items():
            print_text(f"{count_text(number, 'wheel')} {reason}; rerun without --quick to verify them")
        print_text(f"index: {publisher.folder / 'simple'}")
        print_text(f"search page: {publisher.folder / 'index.html'}, doctor: {publisher.folder / 'doctor.py'}")
    selected = {cell.id for cell in (*worklist.to_build, *worklist.published)}
    selected |= {str(row.cell) for row in worklist.to_verify}
    shown = [row for row in rows if row.cell in selected and row.yanked is None]
    _print_install_commands(shown, publisher.folder, without_rocm)
    _print_failures(worklist, failures)


def _print_install_commands(rows: Sequence[WheelRow], folder: Path, without_rocm: Matrix | None) -> None:
    """Print the install commands of the selected wheels.

    On a machine without ROCm, `without_rocm` is the matrix, and the first command installs a wheel that imports here.
    """
    row = pick_smoke_test_wheel(rows, without_rocm) if without_rocm else None
    if row and without_rocm:
        print_text("install here, without ROCm (CPU torch: it imports, but computing needs a GPU):")
        print_results(f"  {smoke_test_line(row, folder, without_rocm)}")
    if lines := directory_install_lines(rows, folder):
        print_text("install where the matching torch for ROCm is already installed:")
        print_results(*(f"  {line}" for line in lines))  # not wrapped: to be copied


def _print_failures(worklist: Worklist, failures: Sequence[Failure]) -> None:
    for failure in failures:
        print_messages(f"error: {failure.name}: {failure.error}", f"hint: {find_hint(failure.error)}")
    for reason, count in Counter(refusal.error.which for refusal in worklist.unbuildable).items():
        first = next(refusal for refusal in worklist.unbuildable if refusal.error.which == reason)
        what = f"{count_text(count, 'selected cell')} cannot be built here: {reason} (such as {first.name})"
        other = "or select cells that build anywhere: `--only '*-triton'`"
        print_messages(f"error: {what}", f"hint: {first.error.hint}; {other}")
