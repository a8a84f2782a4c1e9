"""`wheelfactory ci jobs`, and `ci reconcile`, which compares what it planned with what a run built and published."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

from wheelfactory.commands.options import (
    add_option,
    add_shared,
    cells_of_versions,
    print_messages,
    print_outputs,
    print_results,
    read_context,
)
from wheelfactory.commands.targets import add_target, open_archive_host, open_publisher, require_target
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import DONE, FAILED, InputError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.core.wrap import count_text
from wheelfactory.kernels.estimate import WORKFLOW_SHARDING
from wheelfactory.kernels.kernel_set import KernelSet, group_kernel_sets, stored_set_name
from wheelfactory.kernels.set_estimates import estimate_sets, read_cost_model, source_reader
from wheelfactory.kernels.setup_env import ledger_path
from wheelfactory.matrix.expand import Expansion, expand, select_cells, strategy_json, unpublished_cells
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.jobs import (
    WorkflowJobs,
    batch_matrix,
    kernel_entries,
    make_jobs,
    proof_entries,
    split_by_runner,
)
from wheelfactory.pipeline.outcome import RERUN_HINT, Reconciliation, job_summary
from wheelfactory.release.manifest import available_cells, next_replacements
from wheelfactory.release.transaction import held_rows
from wheelfactory.site.coverage import NEEDS_RUNNER, RUNNER_HINT


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser)
    selection = parser.add_mutually_exclusive_group()
    add_shared(selection, "--only GLOB")
    axes = ("FLASH_ATTN", "PYTHON", "TORCH", "ROCM")
    add_option(selection, "--versions", "select the cell with these four versions", nargs=4, metavar=axes)
    add_option(parser, "--with-triton true|false", "with --versions: select the Triton cell too", "false")
    add_option(parser, "--runner LABEL", "runner for CK cells; without it, --only selects no CK cells", default="")
    add_option(parser, "--commit SHA", "fail unless the workflow run is one of this commit", default="")
    add_option(parser, "--jobs FILE", "write a jobs file for `ci collect` and `ci reconcile`")
    add_shared(parser, "--matrix FILE", "--cache DIR")


def execute(options: argparse.Namespace) -> int:
    """Print the matrices of the jobs of a workflow run, as lines for ``$GITHUB_OUTPUT``."""
    require_target(options.target)
    if options.commit not in ("", found := options.environ.get("GITHUB_SHA", "")):
        hint = "start the workflow at the branch or tag with that commit, all 40 digits"
        raise InputError("not the commit of this run", f"{options.commit}, the run is one of {found or 'none'}", hint)
    context = read_context(options)
    matrix = context.matrix
    selected = _selected_cells(expand(matrix), options)
    with log_to_stderr():
        publisher = open_publisher(options.target, options.environ)
        missing = unpublished_cells(selected, available_cells(held_rows(publisher), matrix))
        replacements = next_replacements(publisher.rows(), matrix)
        archives = open_archive_host(options.target, options.environ)
    cells, unplanned = split_by_runner(missing, options.runner)
    if unplanned and options.versions:
        raise InputError(NEEDS_RUNNER, unplanned[0].id, RUNNER_HINT)
    print_messages(*_counts(cells, unplanned, len(selected) - len(missing), replacements))
    sets = group_kernel_sets(matrix, cells)
    with log_to_stderr():
        stored = frozenset(item.id for item in sets if archives.has(stored_set_name(matrix, item)))
    if options.versions and len(stored) < len(sets):
        # the CK cell's own job compiles what is not stored, but a build that is given archives needs all sets of a cell
        sets = ()
    planned = _choose_shards([item for item in sets if item.id not in stored], context)
    jobs = make_jobs(matrix, cells, sets, planned, unplanned, replacements)
    if options.jobs:
        jobs.write(options.jobs)
    values: dict[str, object] = {"count": len(jobs.cells)}
    if options.versions:
        values |= {"batches": batch_matrix(jobs.cells)}
    else:  # `ci collect` prints the cells, after their kernels are compiled
        kernels, proofs = kernel_entries(jobs), proof_entries(jobs)
        values |= {"kernel-count": len(kernels), "kernels": strategy_json(kernels)}
        values |= {"proof-count": len(proofs), "proofs": strategy_json(proofs)}
    print_outputs(values)
    return DONE


def _selected_cells(expansion: Expansion, options: argparse.Namespace) -> tuple[Cell, ...]:
    with_triton = options.with_triton == "true"
    if options.versions:
        backends = (Backend.CK, Backend.TRITON) if with_triton else (Backend.CK,)
        return cells_of_versions(expansion, options.versions, backends)
    if with_triton:
        hint = "select Triton cells by their id with --only"
        raise InputError("bad arguments", "--with-triton without --versions", hint)
    return select_cells(expansion, options.only)


def _counts(
    cells: Sequence[Cell], unplanned: Sequence[Cell], published: int, replacements: Mapping[str, int]
) -> Iterator[str]:
    """Say how many cells are built, published, left out because there is no runner, and replaced."""
    if cells or unplanned:
        yield f"{count_text(len(cells), 'cell')} to build, {published} already published"
    else:
        yield "nothing to build: every selected cell is published"
    if unplanned:
        yield from (f"{NEEDS_RUNNER}: {count_text(len(unplanned), 'cell')}", f"hint: {RUNNER_HINT}")
    if replaced := sum(cell.id in replacements for cell in cells):
        yield f"{count_text(replaced, 'cell')} to replace: yanked, or lost with its release"


def _choose_shards(sets: Sequence[KernelSet], context: Context) -> dict[str, tuple[str, ...] | str]:
    """Return the shards by set id, or for a set whose sources cannot be listed the reason."""
    cost_model = read_cost_model(None, ledger_path(context.cache))
    estimates = estimate_sets(sets, cost_model, WORKFLOW_SHARDING, source_reader(context))
    for kernel_set, estimate in zip(sets, estimates, strict=True):
        if isinstance(estimate, str):
            print_messages(f"cannot plan {kernel_set.id}: {estimate}", f"  hint: {RERUN_HINT}")
            continue
        hours, count = estimate.cpu_s / 3600, count_text(len(estimate.shards), "shard")
        print_messages(f"kernels to compile: {kernel_set.id}, {hours:.1f} CPU hours in {count}")
    chosen = (estimate if isinstance(estimate, str) else estimate.shards for estimate in estimates)
    return {kernel_set.id: shards for kernel_set, shards in zip(sets, chosen, strict=True)}


def add_reconcile(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ci reconcile`."""
    add_target(parser)
    add_shared(parser, "--matrix FILE")
    add_option(parser, "--jobs FILE", "jobs file of `ci jobs`", required=True)
    add_option(parser, "--results RESULTS", "the result of each job, as JOB=RESULT separated by spaces", default="")
    choices = ["true", "false", ""]  # empty for false
    add_option(parser, "--kernels-pending", "whether a later run compiles the rest of the kernels", "", choices=choices)


def execute_reconcile(options: argparse.Namespace) -> int:
    """Print the cells selected and published as Markdown; exit code 1 for any gap, and for a job that failed."""
    jobs = WorkflowJobs.read(options.jobs)
    selected = {cell.id for cell in jobs.cells}
    with log_to_stderr():
        rows = held_rows(open_publisher(options.target, options.environ))
    pending = selected if options.kernels_pending == "true" else ()
    available = available_cells(rows, load_matrix(options.matrix))
    outcome = Reconciliation(selected, available, pending, jobs.unplanned, options.results.split())
    print_results(*job_summary(outcome, rows).split("\n"))
    print_messages(*outcome.lines())
    return DONE if outcome.complete else FAILED
