"""`wheelfactory ci account`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, show, tell
from wheelfactory.commands.targets import add_target, publisher_of
from wheelfactory.core.errors import DONE, FAILED, InputError
from wheelfactory.core.progress import announcing
from wheelfactory.pipeline.account import compare, job_summary
from wheelfactory.pipeline.jobs import Plan
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
    plan = Plan.read(options.plan)
    planned = {cell.id for cell in plan.cells}
    built = _built(options.built)
    with announcing():
        rows = publisher_of(options.target, environ).rows()
    account = compare(planned, built, available_cells(rows), planned if options.later == "true" else ())
    show(job_summary(account, rows))
    for line in account.lines():
        tell(line)
    return DONE if account.complete else FAILED


def _built(folder: Path) -> frozenset[str]:
    """The cells of all manifests below a folder; none if it is not there, as when no cell was built."""
    if folder.exists() and not folder.is_dir():
        raise InputError("not a directory", str(folder), "name the folder with the manifests")
    return published_cells(row for path in sorted(folder.rglob(MANIFEST_NAME)) for row in read_manifest(path))
