"""The state that a repository must have after a publish, whatever faults occurred."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from fake_github.repository import FakeRelease, Repository
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.manifest import WheelRow, parse_rows

Added: TypeAlias = list[tuple[WheelRow, Path]]
"""Wheels to publish, with their rows."""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def files_of(rows: Iterable[WheelRow]) -> dict[str, str]:
    """The assets of wheels, with the sha256 of each."""
    found: dict[str, str] = {}
    for row in rows:
        found |= {row.filename: row.sha256, f"{row.filename}.metadata": row.metadata_sha256}
    return found


def content_of(release: FakeRelease, name: str) -> bytes:
    (asset,) = (asset for asset in release.assets.values() if asset.name == name)
    assert asset.content is not None
    return asset.content


def published_rows(repository: Repository) -> list[WheelRow]:
    """The rows of the newest published manifest."""
    newest = [release for release in repository.published() if MANIFEST_NAME in release.files()][-1]
    return list(parse_rows(content_of(newest, MANIFEST_NAME), newest.tag))


def assert_published(repository: Repository, rows: Iterable[WheelRow]) -> None:
    """Assert that exactly these rows are published, each file once with its bytes, and nothing else exists."""
    expected = sorted(rows, key=lambda row: row.filename)
    assert published_rows(repository) == expected
    assert repository.drafts() == []
    found: dict[str, str | None] = {}
    for release in repository.published():
        files = release.files()
        assert sums_of(release) == {name: digest for name, digest in files.items() if name != "SHA256SUMS"}
        wheels = {name: digest for name, digest in files.items() if ".whl" in name}
        assert found.keys().isdisjoint(wheels)
        found |= wheels
        for asset in release.assets.values():
            assert asset.content is not None and sha256(asset.content) == asset.sha256
    assert found == files_of(expected)
    assert [release.latest for release in repository.published()][-1:] == [True]


def sums_of(release: FakeRelease) -> dict[str, str]:
    """SHA256SUMS of a release, by name."""
    lines = content_of(release, "SHA256SUMS").decode().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}
