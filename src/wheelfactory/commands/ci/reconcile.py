"""`wheelfactory ci reconcile`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, print_messages, print_results
from wheelfactory.commands.targets import add_target, open_publisher
from wheelfactory.core.errors import DONE, FAILED, InputError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.pipeline.jobs import WorkflowJobs
from wheelfactory.pipeline.reconcile import job_summary, reconcile
from wheelfactory.release.manifest import MANIFEST_NAME, published_cells, read_manifest
from wheelfactory.site.coverage import available_cells


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_target(parser)
    parser.add_argument("--plan", type=Path, required=True, metavar="FILE", help="what `ci jobs` wrote")
    parser.add_argument(
        "--built", type=Path, required=True, metavar="DIR", help="folder with the manifests of what was built"
    )
    parser.add_argument(
        "--later",
        choices=["true", "false", ""],
        default="",
        help="true: kernels are still compiled, so cells that were not built are no gap",
    )


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Compare what was planned, built and published, as Markdown; exit code 1 for any gap, whatever the jobs said."""
    plan = WorkflowJobs.read(options.plan)
    planned = {cell.id for cell in plan.cells}
    if options.built.exists() and not options.built.is_dir():  # not there is none, as when no cell was built
        raise InputError("not a directory", str(options.built), "name the folder with the manifests")
    manifests = sorted(options.built.rglob(MANIFEST_NAME))
    built = published_cells(row for path in manifests for row in read_manifest(path))
    with log_to_stderr():
        rows = open_publisher(options.target, environ).rows()
    account = reconcile(planned, built, available_cells(rows), planned if options.later == "true" else ())
    print_results(job_summary(account, rows))
    print_messages(*account.lines())
    return DONE if account.complete else FAILED
