"""`wheelfactory notes`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, add_matrix, show
from wheelfactory.commands.targets import REPOSITORY, add_published, add_site, published_rows, repository_of, site_at
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import read_manifest
from wheelfactory.site.notes import release_notes


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_published(parser)
    add_matrix(parser)
    add_site(parser)
    parser.add_argument(
        "--since", type=Path, metavar="MANIFEST", help="what was published before; without it everything is new"
    )
    parser.add_argument(
        "--repository",
        metavar="OWNER/REPO",
        help="adds the lines that check where a wheel is from (default: that of TARGET, if it is one)",
    )


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print the notes of a release, as Markdown."""
    repository = options.repository or repository_of(options.target)
    if repository and not REPOSITORY.fullmatch(repository):
        raise InputError("not a repository", repository, "write OWNER/REPO, as in the address on GitHub")
    before = read_manifest(options.since) if options.since else ()
    after = published_rows(options.target, environ)
    site = site_at(options.target, options.site)
    matrix = load_matrix(options.matrix)
    text = release_notes(before, after, matrix=matrix, site=site, repository=repository)
    show(text.removesuffix("\n"))
    return DONE
