"""`wheelfactory matrix`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, add_option, add_shared, print_messages, print_rendered, print_results
from wheelfactory.core.errors import DONE
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.matrix.expand import (
    GITHUB_MATRIX_LIMIT,
    expand,
    explain_selection,
    github_matrix,
    select_cells,
    unpublished_cells,
)
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import available_cells, read_manifest
from wheelfactory.site.supported import supported_tables


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory matrix --only '*-cp312-*' --published wheelhouse --explain"
    add_shared(parser, "--matrix FILE", "--only GLOB")
    add_option(parser, "--published MANIFEST", "omit cells with a wheel in this manifest or release directory")
    shape = parser.add_mutually_exclusive_group()
    add_option(shape, "--table", "print a table of supported versions instead (as Markdown in a pipe)")
    add_option(shape, "--shards", "print a two-level matrix, for more than GitHub's 256 jobs")
    add_option(parser, "--explain", "print on stderr why each combination is built or not")


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print ``{"include":[...]}`` for the selected unpublished cells, or the supported versions."""
    facts = load_matrix(options.matrix)
    expansion = expand(facts)
    if options.table:
        from wheelfactory.core.terminal import markdown_lines  # late: create_matrix.py needs no rich

        print_rendered(*markdown_lines(supported_tables(facts, expansion)))
        return DONE
    selected = select_cells(expansion, options.only)
    published = _published(options.published, facts) if options.published else frozenset()
    cells = unpublished_cells(selected, published)
    if options.explain:
        print_messages(*explain_selection(expansion, cells, published, options.only))
    if not cells:
        print_messages("nothing to build: every selected cell is published")
    if len(cells) > GITHUB_MATRIX_LIMIT and not options.shards:
        limit = f"GitHub's limit of {GITHUB_MATRIX_LIMIT} jobs in one matrix"
        print_messages(f"warning: {len(cells)} cells exceed {limit}; use --shards, or select fewer with --only")
    print_results(github_matrix(facts, cells, shards=options.shards))
    return DONE


def _published(path: Path, matrix: Matrix) -> frozenset[str]:
    """Read the cells of a manifest or release directory. Raises `InputError` for a directory without a manifest."""
    # not an empty set: a directory without a manifest is more often a typing error than an empty release
    return available_cells(read_manifest(path / MANIFEST_NAME if path.is_dir() else path), matrix)
