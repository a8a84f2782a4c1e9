"""What is published, as commands that only read it are told: a directory, a manifest file, or a GitHub repository."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ
from wheelfactory.commands.targets import publisher_of, repository_of
from wheelfactory.core.progress import announcing
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.site.advice import pages_of, site_of


def add_published(parser: argparse.ArgumentParser) -> None:
    """The place of what is published as an argument."""
    parser.add_argument("target", metavar="TARGET", help="a release directory, a manifest file, or github:OWNER/REPO")


def add_site(parser: argparse.ArgumentParser) -> None:
    """``--site URL``"""
    parser.add_argument(
        "--site",
        metavar="URL",
        default="",
        help="where simple/ is served, for install lines (default: a TARGET that is a directory, or GitHub's Pages)",
    )


def published_rows(target: str, environ: Environ) -> tuple[WheelRow, ...]:
    """The rows of a target. Raises `InputError` if it cannot be read."""
    if repository_of(target):
        with announcing():
            return publisher_of(target, environ).rows()
    return read_manifest(Path(target))


def site_at(target: str, site: str) -> str | None:
    """The address of the indexes: `site` if it is given, else that of a directory or of a repository's Pages.

    None where there are none.
    """
    repository = repository_of(target)
    if site or repository:
        return site or pages_of(str(repository))
    return site_of(Path(target)) if Path(target).is_dir() else None
