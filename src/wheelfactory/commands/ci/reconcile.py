"""`wheelfactory ci reconcile`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, add_matrix, print_messages, print_results
from wheelfactory.commands.targets import add_target, open_publisher
from wheelfactory.core.errors import DONE, FAILED, InputError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.jobs import WorkflowJobs
from wheelfactory.pipeline.reconcile import job_summary, reconcile
from wheelfactory.release.manifest import read_manifest
from wheelfactory.site.coverage import available_cells


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser)
    add_matrix(parser)
    parser.add_argument("--jobs", type=Path, required=True, metavar="FILE", help="jobs file of `ci jobs`")
    parser.add_argument(
        "--built", type=Path, required=True, metavar="DIR", help="directory with the manifests of the built wheels"
    )
    parser.add_argument(
        "--kernels-pending",
        choices=["true", "false", ""],
        default="",
        help="whether a later run compiles the rest of the kernels: true, false, or empty for false",
    )


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print the cells selected, built and published as Markdown; exit code 1 for any gap."""
    jobs = WorkflowJobs.read(options.jobs)
    selected = {cell.id for cell in jobs.cells}
    # a missing folder is not an error: GitHub creates none if no cell was built
    if options.built.exists() and not options.built.is_dir():
        raise InputError("not a directory", str(options.built), "name the directory of the manifests")
    manifests = sorted(options.built.rglob(MANIFEST_NAME))
    built = {str(row.cell) for path in manifests for row in read_manifest(path) if row.cell}
    with log_to_stderr():
        rows = open_publisher(options.target, environ).rows()
    pending = selected if options.kernels_pending == "true" else ()
    outcome = reconcile(selected, built, available_cells(rows, load_matrix(options.matrix)), pending, jobs.unplanned)
    print_results(job_summary(outcome, rows))
    print_messages(*outcome.lines())
    return DONE if outcome.complete else FAILED
