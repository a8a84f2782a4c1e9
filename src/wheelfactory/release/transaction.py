"""The publish transaction, for any place that can hold files: assets first, then what names them, the index last.

Every step can be done again: an asset that is there and the same is kept, so an interrupted publish is resumed by
running the same command.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import PublishError
from wheelfactory.core.progress import ProgressPart, ignore_progress
from wheelfactory.gpu.validate.report import ValidatedPackage, Validation
from wheelfactory.release.evidence import as_evidence, merge_evidence
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import merge_verified_gates
from wheelfactory.wheel.read import Wheel

SUMS_NAME = "SHA256SUMS"


@dataclass(frozen=True)
class Asset:
    """A file to publish: its name, its sha256, and where its bytes are (a file, or the bytes themselves)."""

    name: str
    sha256: str
    content: Path | bytes

    @classmethod
    def from_content(cls, name: str, content: Path | bytes) -> Asset:
        """The asset of a file or of bytes, as they are now."""
        digest = hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else file_sha256(content)
        return cls(name, digest, content)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size


def asset_digests(rows: Iterable[WheelRow]) -> dict[str, str]:
    """The assets of rows and the sha256 of each."""
    found: dict[str, str] = {}
    for row in rows:
        found |= {row.filename: row.sha256, f"{row.filename}.metadata": row.metadata_sha256}
    return found


def sha256sums(files: Mapping[str, str]) -> bytes:
    """SHA256SUMS of files with these digests, as ``sha256sum --check`` reads it."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()


Addition: TypeAlias = tuple[WheelRow, Path | None]
"""A row and the file it is of; without one the place must hold that file already, staged by an earlier call."""

BeginStep: TypeAlias = Callable[[str], AbstractContextManager[ProgressPart]]
"""Begins a step of what a person sees, such as `Steps.step`."""


def silent_step(_text: str) -> AbstractContextManager[ProgressPart]:
    """A `Step` for what nobody waits for."""
    return nullcontext(ignore_progress)


class Publisher(Protocol):
    """A place that wheels are published to."""

    def rows(self) -> tuple[WheelRow, ...]:
        """What is published there."""

    def has_wheel(self, row: WheelRow) -> bool:
        """Whether the wheel of a row and its metadata are there, published or staged, and are what the row says.

        Raises `PublishError` if a published file was changed.
        """

    def put_asset(self, asset: Asset, part: ProgressPart = ignore_progress) -> None:
        """Make the place hold this asset: keep an identical one, replace a half-written or unpublished one.

        `part` is told the bytes done and to do. Raises `PublishError` if a published file of that name has other bytes.
        """

    def commit(self, rows: Sequence[WheelRow]) -> None:
        """Make exactly these rows what is published; the last step, and the one that counts.

        Raises `PublishError`, with nothing changed, for rows that would not read back (`manifest_bytes`).
        """


def stage(publisher: Publisher, additions: Iterable[Addition], step: BeginStep = silent_step) -> tuple[WheelRow, ...]:
    """Bring wheels to where they will be published, and publish nothing.

    Gives the rows that are published and these, sorted by file name; a published row of the same bytes stays, with the
    gates of the new one if only those verify the wheel. Raises `PublishError` if a name is published with
    other bytes, or a file is neither given nor there.
    """
    rows = {row.filename: row for row in publisher.rows()}
    for row, path in additions:
        present = rows.get(row.filename, row)
        if present.sha256 != row.sha256:
            raise PublishError(
                "already published with other bytes",
                row.filename,
                "a published file is never replaced: yank it (`wheelfactory publish TARGET --yank NAME --reason WHY`) "
                "and publish the new one under another version or build tag",
            )
        rows[row.filename] = merge_verified_gates(present, row)
        with step(row.filename) as part:
            for asset in wheel_assets(row, path) if path else ():
                publisher.put_asset(asset, part)
            if not (path or publisher.has_wheel(row)):
                hint = "stage it: publish with --stage and its file"
                raise PublishError("neither given nor staged", row.filename, hint)
    return tuple(rows[name] for name in sorted(rows))


def publish(publisher: Publisher, additions: Iterable[Addition], step: BeginStep = silent_step) -> tuple[WheelRow, ...]:
    """Publish wheels (each a row and its file) beside what is published; gives all rows afterwards.

    Raises as `stage` does; nothing is committed then.
    """
    rows = stage(publisher, additions, step)
    with step("publish"):
        publisher.commit(rows)
    return rows


def wheel_assets(row: WheelRow, path: Path) -> tuple[Asset, Asset]:
    """The wheel, and its METADATA as the file that an index points resolvers to (PEP 658)."""
    metadata = Wheel.open(path).metadata_bytes
    found = file_sha256(path)
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


def add_evidence(publisher: Publisher, validations: Iterable[Validation]) -> tuple[WheelRow, ...]:
    """Add what validations found on GPUs to the rows of the wheels with their sha256, and commit; gives all rows.

    No file changes. Of several for one wheel, arch and mode the newest stays. Raises `InputError` for one that is no
    evidence, and `PublishError` for one of a file that is not published, or if newer evidence is; nothing is committed
    then.
    """
    rows = {row.filename: row for row in publisher.rows()}
    for validation in sorted(validations, key=lambda validation: validation.time):
        piece = as_evidence(validation)
        row = _row_of(validation.validated, tuple(rows.values()))
        for held in row.evidence:
            if held.key == piece.key and held.time > piece.time:
                which = f"{row.filename} on {piece.arch} ({held.time:%Y-%m-%d %H:%M})"
                raise PublishError("newer evidence is published", which, "leave this report out, or validate again")
        rows[row.filename] = row.model_copy(update={"evidence": merge_evidence(row.evidence, piece)})
    changed = tuple(rows.values())
    publisher.commit(changed)
    return changed


def _row_of(validated: ValidatedPackage, rows: Sequence[WheelRow]) -> WheelRow:
    for row in rows:
        if row.sha256 == validated.sha256:
            return row
    name = validated.filename or f"{validated.project} {validated.version}"
    if any(row.filename == validated.filename for row in rows):
        raise PublishError("validated with other bytes than are published", name, "validate the file that is published")
    raise PublishError("not published, so nothing can be added to it", name, "publish the wheel first")
