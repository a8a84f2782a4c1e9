"""Open the target that a command names: a release directory, or ``github:OWNER/REPO``.

Commands that only read a target also accept a manifest file.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from wheelfactory.commands.options import Environ, as_directory
from wheelfactory.core.errors import InputError
from wheelfactory.core.progress import log_to_stderr, logger
from wheelfactory.core.published import WHEELS_FOLDER
from wheelfactory.release.bundle import REF_VARIABLE
from wheelfactory.release.directory import DirectoryDryRun, DirectoryPublisher
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.release.transaction import Publisher
from wheelfactory.site.index import file_url, github_pages_url

if TYPE_CHECKING:
    from wheelfactory.kernels.storage import ArchiveHost
    from wheelfactory.release.github.archive_host import GitHubArchiveHost
    from wheelfactory.release.github.client import Client
    from wheelfactory.release.github.publisher import WriteNotes
    from wheelfactory.release.published_site import PublishedSite

GITHUB = "github:"
TARGET_VARIABLE = "WHEELFACTORY_TARGET"
"""The environment variable with the target of the workflows: a directory, where their runners share one."""

REPOSITORY_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?/[A-Za-z0-9._-]+")
"""``OWNER/REPO``."""


def add_target(
    parser: argparse.ArgumentParser, forms: str = "release directory, or github:OWNER/REPO", nargs: str | None = None
) -> None:
    """Add ``TARGET``, which takes one of these `forms`."""
    parser.add_argument("target", metavar="TARGET", type=_target, help=forms, nargs=nargs)


def _target(text: str) -> str:
    """Return the target. ``github:`` alone means `TARGET_VARIABLE`, else the repository of the workflow run."""
    if text != GITHUB:
        return text
    return os.environ.get(TARGET_VARIABLE) or GITHUB + os.environ.get("GITHUB_REPOSITORY", "")


def parse_repository(text: str) -> str | None:
    """Return ``OWNER/REPO`` of a GitHub target, None for a directory. Raises `InputError` for a bad repository."""
    if not text.startswith(GITHUB):
        return None
    repository = text.removeprefix(GITHUB)
    if not REPOSITORY_PATTERN.fullmatch(repository):
        raise InputError("not a repository", text, "write github:OWNER/REPO")
    return repository


def require_target(text: str) -> None:
    """Raise `InputError` for a release directory that does not exist: it would read as a release without wheels."""
    if parse_repository(text) is None and not os.path.lexists(text):
        hint = "name a release directory (create an empty one for a first release) or github:OWNER/REPO"
        raise InputError("no such directory", text, hint)


def open_publisher(
    text: str,
    environ: Environ,
    *,
    tag: str | None = None,
    notes: WriteNotes | None = None,
    dry_run_output: Callable[[str], None] | None = None,
) -> Publisher:
    """Open a target for publishing; reads GITHUB_TOKEN and other variables of GitHub from `environ`.

    `tag` and `notes` are the release tag and the text of the release, on GitHub only. With `dry_run_output` the
    publisher is a dry run: it passes each call or file to that function and changes nothing. Raises `InputError` for a
    bad target or tag.
    """
    repository = parse_repository(text)
    if repository is None:
        folder = as_directory(Path(text))
        return DirectoryDryRun(folder, dry_run_output) if dry_run_output else DirectoryPublisher(folder)
    from wheelfactory.release.github.dry_run import DryRunReleases
    from wheelfactory.release.github.publisher import GitHubPublisher
    from wheelfactory.release.github.releases import Releases

    client, commit = open_client(text, environ), _commit_of_run(repository, environ)
    releases = DryRunReleases(client, dry_run_output, commit) if dry_run_output else Releases(client, commit)
    return GitHubPublisher(releases, tag, notes)


def open_archive_host(text: str, environ: Environ) -> ArchiveHost:
    """Open the archive host of a target, for kernel archives. Raises `InputError` for a bad target."""
    if parse_repository(text):
        return open_attested_archive_host(text, environ)
    from wheelfactory.kernels.storage import DirectoryArchiveHost

    logger.info("%s is a directory, which has no attestations: only the sha256 of kernel archives is checked", text)
    return DirectoryArchiveHost(as_directory(Path(text)))


def open_attested_archive_host(text: str, environ: Environ) -> GitHubArchiveHost:
    """Open the archive host of a GitHub target. Raises `InputError` for any other target."""
    client = open_client(text, environ)
    from wheelfactory.release.github.archive_host import GitHubArchiveHost
    from wheelfactory.release.github.releases import Releases

    releases = Releases(client, _commit_of_run(client.repository, environ))
    return GitHubArchiveHost(releases, environ.get(REF_VARIABLE, ""))


def _commit_of_run(repository: str, environ: Environ) -> str | None:
    """The commit of the current workflow run; None outside a run of this repository."""
    is_own = environ.get("GITHUB_REPOSITORY", "").lower() == repository.lower()  # GitHub ignores case in names
    return environ.get("GITHUB_SHA") or None if is_own else None


def open_client(text: str, environ: Environ) -> Client:
    """Open the API of a GitHub target, trusting the system's certificates. Raises `InputError` for any other target."""
    repository = parse_repository(text)
    if repository is None:
        raise InputError("not a repository", text, "write github:OWNER/REPO")
    # imported here: it and requests are slow to import, and only GitHub targets need them
    import truststore

    from wheelfactory.release.github.client import API_URL, Client

    truststore.inject_into_ssl()
    return Client(environ.get("GITHUB_API_URL") or API_URL, repository, environ.get("GITHUB_TOKEN"))


DEFAULT_DIRECTORY = "wheelhouse"
"""The release directory that `run` publishes into, and that is read if no target is named."""


def add_readonly_target(parser: argparse.ArgumentParser, *, is_optional: bool = False) -> None:
    """Add ``TARGET`` to a command that only reads it; if `is_optional`, it is None unless given."""
    default, nargs = (f" (default: {DEFAULT_DIRECTORY})", "?") if is_optional else ("", None)
    add_target(parser, f"release directory, manifest file, or github:OWNER/REPO{default}", nargs)


def read_published_rows(target: str, environ: Environ) -> tuple[WheelRow, ...]:
    """Read the rows of a target, with wheels yanked whose files were deleted. Raises `InputError` if not readable."""
    if parse_repository(target):
        with log_to_stderr():
            return yank_lost(open_publisher(target, environ).rows())
    return yank_lost(read_manifest(Path(target)), Path(target))


LOST_NAME = "lost.jsonl"
"""Beside the manifest of a site of a repository: the rows whose files were deleted from GitHub, if there are any."""


def yank_lost(rows: Iterable[WheelRow], target: Path | None = None) -> tuple[WheelRow, ...]:
    """The rows of a repository, or of a directory or a manifest, with those yanked whose files were deleted."""

    def is_lost(row: WheelRow) -> bool:
        held = target and (target.is_file() or (target / WHEELS_FOLDER / row.filename).is_file())
        return not (row.url or row.yanked or held)

    lost = {"yanked": f"its file was deleted from {target or 'GitHub'}"}
    return tuple(row.model_copy(update=lost) if is_lost(row) else row for row in rows)


def open_site(text: str, environ: Environ) -> PublishedSite:
    """Open a site to compare with: its URL, a release directory, a manifest, or ``github:OWNER/REPO``.

    Raises `InputError` if it is not readable.
    """
    from wheelfactory.release.published_site import PublishedSite, read_site  # slow to import, as above

    repository = parse_repository(text)
    if repository is None:
        return read_site(text, environ)
    return PublishedSite(text, read_published_rows(text, environ), repository=repository, environ=environ)


def find_site_url(target: str, site: str) -> str | None:
    """Return the URL of the site: `site`, else the directory or the repository's GitHub Pages, else None."""
    repository = parse_repository(target)
    if site or repository:
        return site or github_pages_url(str(repository))
    return file_url(Path(target)) if Path(target).is_dir() else None
