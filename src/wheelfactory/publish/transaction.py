"""The publish transaction, for any place that can hold files: assets first, then what names them, the index last.

Every step can be done again: an asset that is there and the same is kept, so an interrupted publish is resumed by
running the same command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wheelfactory.errors import PublishError
from wheelfactory.files import sha256_of
from wheelfactory.manifest import WheelRow
from wheelfactory.wheel.read import Wheel


@dataclass(frozen=True)
class Asset:
    """A file to publish: its name, its sha256, and where its bytes are (a file, or the bytes themselves)."""

    name: str
    sha256: str
    content: Path | bytes


class Publisher(Protocol):
    """A place that wheels are published to."""

    def rows(self) -> tuple[WheelRow, ...]:
        """What is published there."""

    def holds(self, row: WheelRow) -> bool:
        """Whether the file of a published row is there; raises `PublishError` if it was changed."""

    def ensure(self, asset: Asset) -> None:
        """Make the place hold this asset: keep an identical one, replace a half-written or unpublished one.

        Raises `PublishError` if a published file of that name has other bytes.
        """

    def commit(self, rows: Sequence[WheelRow]) -> None:
        """Make exactly these rows what is published; the last step, and the one that counts."""


def publish(publisher: Publisher, additions: Iterable[tuple[WheelRow, Path]]) -> tuple[WheelRow, ...]:
    """Publish wheels (each a row and its file) beside what is published; gives all rows afterwards.

    Raises `PublishError` if a name is published with other bytes; nothing is committed then.
    """
    published = {row.filename: row for row in publisher.rows()}
    for row, path in additions:
        present = published.get(row.filename)
        if present and present.sha256 != row.sha256:
            raise PublishError(
                "already published with other bytes",
                row.filename,
                "a published file is never replaced: yank it (`wheelfactory publish DIR --yank NAME --reason WHY`) "
                "and publish the new one under another version or build tag",
            )
        for asset in wheel_assets(row, path):
            publisher.ensure(asset)
        published.setdefault(row.filename, row)
    rows = tuple(published[name] for name in sorted(published))
    publisher.commit(rows)
    return rows


def wheel_assets(row: WheelRow, path: Path) -> tuple[Asset, Asset]:
    """The wheel, and its METADATA as the file that an index points resolvers to (PEP 658)."""
    metadata = Wheel.open(path).metadata_bytes
    found = sha256_of(path)
    if (found, hashlib.sha256(metadata).hexdigest()) != (row.sha256, row.metadata_sha256):
        raise PublishError("changed since it was verified", str(path), "verify it again")
    return (
        Asset(row.filename, row.sha256, path),
        Asset(f"{row.filename}.metadata", row.metadata_sha256, metadata),
    )


def yank(publisher: Publisher, filename: str, reason: str) -> tuple[WheelRow, ...]:
    """Mark a published wheel as not to be installed; the file stays, for those who pinned it.

    Raises `PublishError` if no such file is published, or no reason is given.
    """
    if not reason.strip():
        raise PublishError("no reason given to yank", filename, "say why with --reason; pip shows it to users")
    rows = publisher.rows()
    if filename not in {row.filename for row in rows}:
        raise PublishError("not published, so it cannot be yanked", filename, "its manifest lists what is")
    changed = tuple(
        row.model_copy(update={"yanked": " ".join(reason.split())}) if row.filename == filename else row for row in rows
    )
    publisher.commit(changed)
    return changed
