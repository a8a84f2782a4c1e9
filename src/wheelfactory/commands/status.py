"""`wheelfactory status`."""

from __future__ import annotations

import argparse
import json

from wheelfactory.commands.options import Environ, add_matrix, add_only, show, tell
from wheelfactory.commands.targets import add_published, published_rows
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.coverage import as_json, as_markdown, cell_lines, cover, sum_lines


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_published(parser)
    add_matrix(parser)
    add_only(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object: sums, reasons, every cell")
    form.add_argument("--markdown", action="store_true", help="tables for a page or a job summary")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print which selected cells are published; exit code 1 if some are missing or yanked."""
    expansion = expand(load_matrix(options.matrix))
    coverage = cover(expansion, published_rows(options.target, environ), options.only)
    if options.json:
        show(json.dumps(as_json(coverage, options.target)))
    elif options.markdown:
        show(as_markdown(coverage).removesuffix("\n"))
    else:
        show(*cell_lines(coverage))
        tell(*sum_lines(coverage, options.target))
    return DONE if coverage.tally.published == coverage.tally.wanted else FAILED
