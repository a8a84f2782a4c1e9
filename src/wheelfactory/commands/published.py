"""What is published, as commands that only read it are told: a directory, a manifest file, or a GitHub repository."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.advice import site_of
from wheelfactory.commands.options import Environ
from wheelfactory.commands.targets import GITHUB, publisher_of
from wheelfactory.manifest import WheelRow, read_manifest
from wheelfactory.progress import announcing


def add_published(parser: argparse.ArgumentParser) -> None:
    """The place of what is published as an argument."""
    parser.add_argument("target", metavar="TARGET", help="a release directory, a manifest file, or github:OWNER/REPO")


def add_site(parser: argparse.ArgumentParser) -> None:
    """``--site URL``"""
    parser.add_argument(
        "--site",
        metavar="URL",
        help="where simple/ is served, for install lines (default: a TARGET that is a directory)",
    )


def published_rows(target: str, environ: Environ) -> tuple[WheelRow, ...]:
    """The rows of a target. Raises `InputError` if it cannot be read."""
    if target.startswith(GITHUB):
        with announcing():
            return publisher_of(target, environ).rows()
    return read_manifest(Path(target))


def site_at(target: str, site: str | None) -> str | None:
    """The address of the indexes: `site` if it is given, else that of a directory; None where there are none."""
    if site is None and Path(target).is_dir():
        return site_of(Path(target))
    return site
