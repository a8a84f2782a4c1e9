"""`wheelfactory status`."""

from __future__ import annotations

import argparse
import json

from wheelfactory.commands.options import Environ, add_matrix, add_only, print_messages, print_results
from wheelfactory.commands.targets import add_readonly_target, read_published_rows
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.coverage import compute_coverage
from wheelfactory.site.coverage_output import cell_lines, coverage_json, coverage_markdown, summary_lines


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory status github:OWNER/REPO --only '*-torch2.9.1-*'"
    add_readonly_target(parser)
    add_matrix(parser)
    add_only(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object with counts, reasons and every cell")
    form.add_argument("--markdown", action="store_true", help="print Markdown tables, for a page or a job summary")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print which selected cells are published; exit code 1 unless all are."""
    expansion = expand(load_matrix(options.matrix))
    coverage = compute_coverage(expansion, read_published_rows(options.target, environ), options.only)
    if options.json:
        print_results(json.dumps(coverage_json(coverage, options.target)))
    elif options.markdown:
        print_results(coverage_markdown(coverage).removesuffix("\n"))
    else:
        print_results(*cell_lines(coverage))
        print_messages(*summary_lines(coverage, options.target))
    return DONE if coverage.counts.published == coverage.counts.wanted else FAILED
