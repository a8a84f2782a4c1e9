"""Where wheels are published to and kernels kept, as text: a directory, or ``github:OWNER/REPO``.

Commands that only read what is published take a manifest file too.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wheelfactory.commands.options import Environ, as_directory
from wheelfactory.core.errors import InputError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.release.directory import DirectoryDryRun, DirectoryPublisher
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.release.transaction import Publisher
from wheelfactory.site.install_lines import file_url, github_pages_url

if TYPE_CHECKING:
    from wheelfactory.kernels.archive_host import ArchiveHost
    from wheelfactory.release.github.client import Client
    from wheelfactory.release.github.publisher import WriteNotes

GITHUB = "github:"
REPOSITORY_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?/[A-Za-z0-9._-]+")
"""``OWNER/REPO``."""


def add_target(parser: argparse.ArgumentParser) -> None:
    """The target as an argument."""
    parser.add_argument("target", metavar="TARGET", help="release directory, or github:OWNER/REPO")


def parse_repository(text: str) -> str | None:
    """``OWNER/REPO`` of a target on GitHub, None for a directory. Raises `InputError` for what is no repository."""
    if not text.startswith(GITHUB):
        return None
    repository = text.removeprefix(GITHUB)
    if not REPOSITORY_PATTERN.fullmatch(repository):
        raise InputError("not a repository", text, "write github:OWNER/REPO")
    return repository


def open_publisher(
    text: str,
    environ: Environ,
    *,
    tag: str | None = None,
    notes: WriteNotes | None = None,
    show: Callable[[str], None] | None = None,
) -> Publisher:
    """The place that a target names. GITHUB_TOKEN and GITHUB_API_URL are read from `environ`.

    `tag` is what is published on GitHub under, and nothing to a directory; `notes` gives the text of the release. With
    `show` nothing is changed: it is given each call or file that would be. Raises `InputError` for what is no target
    or cannot have that tag.
    """
    repository = parse_repository(text)
    if repository is None:
        folder = as_directory(Path(text))
        return DirectoryDryRun(folder, show) if show else DirectoryPublisher(folder)
    from wheelfactory.release.github.dry_run import DryRunReleases
    from wheelfactory.release.github.publisher import GitHubPublisher
    from wheelfactory.release.github.releases import Releases

    client = _client(repository, environ)
    releases = DryRunReleases(client, show) if show else Releases(client)
    return GitHubPublisher(releases, tag, notes)


def open_archive_host(text: str, environ: Environ) -> ArchiveHost:
    """Where a target keeps kernel archives. Raises `InputError` for what is no target."""
    repository = parse_repository(text)
    if repository is None:
        from wheelfactory.kernels.archive_host import DirectoryArchiveHost

        return DirectoryArchiveHost(as_directory(Path(text)))
    from wheelfactory.release.github.archive_host import GitHubArchiveHost
    from wheelfactory.release.github.releases import Releases

    return GitHubArchiveHost(Releases(_client(repository, environ)))


def _client(repository: str, environ: Environ) -> Client:
    """Calls to a repository, with certificates as the system has them."""
    import truststore  # it and requests take a while to import, and a directory needs neither

    from wheelfactory.release.github.client import API_URL, Client

    truststore.inject_into_ssl()
    return Client(environ.get("GITHUB_API_URL") or API_URL, repository, environ.get("GITHUB_TOKEN"))


def add_read_target(parser: argparse.ArgumentParser) -> None:
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


def read_published_rows(target: str, environ: Environ) -> tuple[WheelRow, ...]:
    """The rows of a target. Raises `InputError` if it cannot be read."""
    if parse_repository(target):
        with log_to_stderr():
            return open_publisher(target, environ).rows()
    return read_manifest(Path(target))


def find_site_url(target: str, site: str) -> str | None:
    """The address of the indexes: `site` if it is given, else that of a directory or of a repository's Pages.

    None where there are none.
    """
    repository = parse_repository(target)
    if site or repository:
        return site or github_pages_url(str(repository))
    return file_url(Path(target)) if Path(target).is_dir() else None
