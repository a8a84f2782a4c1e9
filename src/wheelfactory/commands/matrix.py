"""`wheelfactory matrix`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, add_matrix, add_only, print_messages, print_results
from wheelfactory.core.errors import DONE
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.select import (
    GITHUB_MATRIX_LIMIT,
    explain_selection,
    github_matrix,
    select_cells,
    unpublished_cells,
)
from wheelfactory.release.manifest import MANIFEST_NAME, published_cells, read_manifest
from wheelfactory.site.supported import supported_tables


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_matrix(parser)
    add_only(parser)
    parser.add_argument(
        "--published",
        type=Path,
        metavar="MANIFEST",
        help="leave out what this manifest (or release directory) has",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--table", action="store_true", help="print what is supported instead, as Markdown for people")
    shape.add_argument("--shards", action="store_true", help="two levels, for more than 256 cells")
    parser.add_argument("--explain", action="store_true", help="say on stderr what became of every combination")


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print ``{"include":[...]}`` for the cells that are selected and not published, or what is supported."""
    facts = load_matrix(options.matrix)
    expansion = expand(facts)
    if options.table:
        print_results(*supported_tables(facts, expansion))
        return DONE
    selected = select_cells(expansion, options.only)
    published = _published(options.published) if options.published else frozenset()
    cells = unpublished_cells(selected, published)
    if options.explain:
        print_messages(*explain_selection(expansion, cells, published, options.only))
    if not cells:
        print_messages("nothing to build: every cell selected is published")
    if len(cells) > GITHUB_MATRIX_LIMIT and not options.shards:
        print_messages(
            f"warning: {len(cells)} cells are more than the {GITHUB_MATRIX_LIMIT} that GitHub takes in one matrix; "
            "use --shards, or select with --only"
        )
    print_results(github_matrix(facts, cells, shards=options.shards))
    return DONE


def _published(path: Path) -> frozenset[str]:
    """The cells of a manifest, or of a release directory.

    Raises `InputError` for a directory without a manifest: its name is mistyped more often than nothing is published.
    """
    return published_cells(read_manifest(path / MANIFEST_NAME if path.is_dir() else path))
