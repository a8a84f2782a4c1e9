"""`wheelfactory notes`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import add_option, add_shared, print_results
from wheelfactory.commands.targets import (
    REPOSITORY_PATTERN,
    add_readonly_target,
    find_site_url,
    parse_repository,
    read_published_rows,
)
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import read_manifest
from wheelfactory.site.notes import release_notes


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory notes wheelhouse --since old/manifest.jsonl"
    add_readonly_target(parser)
    add_shared(parser, "--matrix FILE", "--site URL")
    add_option(parser, "--since MANIFEST", "list only wheels that this older manifest lacks (default: all)")
    what = "add commands that verify where a wheel was built (default: the repository of TARGET)"
    add_option(parser, "--repository OWNER/REPO", what)


def execute(options: argparse.Namespace) -> int:
    """Print the release notes as Markdown."""
    repository = options.repository or parse_repository(options.target)
    if repository and not REPOSITORY_PATTERN.fullmatch(repository):
        raise InputError("not a repository", repository, "write OWNER/REPO, as in its GitHub address")
    before = read_manifest(options.since) if options.since else ()
    after = read_published_rows(options.target, options.environ)
    site = find_site_url(options.target, options.site)
    text = release_notes(before, after, matrix=load_matrix(options.matrix), site=site, repository=repository)
    print_results(*text.removesuffix("\n").split("\n"))
    return DONE
