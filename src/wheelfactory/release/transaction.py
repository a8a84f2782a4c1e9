"""The publish transaction for any publisher: upload the assets, then the manifest that names them.

Every step can be repeated, because an identical asset is kept: after an interruption, run the same command again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from wheelfactory.core.errors import PublishError
from wheelfactory.core.files import content_key, file_sha256
from wheelfactory.core.progress import ProgressCallback, ignore_progress, logger
from wheelfactory.gpu.validation_report import ValidatedPackage, Validation
from wheelfactory.release.bundle import ATTESTED, BUNDLE_SUFFIX, read_subjects
from wheelfactory.release.evidence import as_evidence, merge_evidence
from wheelfactory.release.manifest import WheelRow, manifest_bytes
from wheelfactory.release.verified import merge_verified_gates
from wheelfactory.wheel.read import Wheel

SUMS_NAME = "SHA256SUMS"

_STAGED_PREFIX = "staged-"

# commits of one change while other runs publish. Publishes are rare, so that five in a row are not a coincidence
_MOST_COMMITS = 5


@dataclass(frozen=True)
class Asset:
    """A file to publish: its name, its sha256, and its content as a file or as bytes."""

    name: str
    sha256: str
    content: Path | bytes

    @classmethod
    def from_content(cls, name: str, content: Path | bytes) -> Asset:
        """Hash a file or bytes."""
        digest = hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else file_sha256(content)
        return cls(name, digest, content)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size


def asset_digests(rows: Iterable[WheelRow]) -> dict[str, str]:
    """The sha256 of each asset of these rows, by name."""
    found: dict[str, str] = {}
    for row in rows:
        found |= {row.filename: row.sha256, f"{row.filename}.metadata": row.metadata_sha256}
    return found


def sha256sums(files: Mapping[str, str]) -> bytes:
    """The content of SHA256SUMS for files with these digests, as ``sha256sum --check`` reads it."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()


def is_staged_rows(name: str) -> bool:
    """Whether an asset of this name has rows of staged wheels."""
    return name.startswith(_STAGED_PREFIX)


def staged_rows_asset(rows: Sequence[WheelRow]) -> Asset:
    """The asset with the rows of staged wheels, named after its content: several jobs fill one draft."""
    data = manifest_bytes(rows)
    return Asset.from_content(f"{_STAGED_PREFIX}{content_key(data)}.jsonl", data)


def attested_names(row: WheelRow) -> tuple[str, ...]:
    """The name of the bundle that must be beside the wheel of a row; none for a dependency."""
    return (f"{row.filename}{BUNDLE_SUFFIX}",) if row.project in ATTESTED else ()


Addition: TypeAlias = tuple[WheelRow, Path | None]
"""A row and its file; without a file, an earlier call must have staged it."""

BeginStep: TypeAlias = Callable[[str], AbstractContextManager[ProgressCallback]]
"""Starts a progress step, such as `Steps.step`."""


ChangeRows: TypeAlias = Callable[[Sequence[WheelRow]], tuple[WheelRow, ...]]
"""Applies a change to the published rows. Applied again, it changes nothing."""


def silent_step(_text: str) -> AbstractContextManager[ProgressCallback]:
    """A `BeginStep` that shows nothing."""
    return nullcontext(ignore_progress)


class ConcurrentPublishError(PublishError):
    """Another run published since the rows were read, or at the same time."""

    def __init__(self, which: str) -> None:
        super().__init__("another run published in the meantime", which, "run the same command again")


class Publisher(Protocol):
    """A place that wheels are published to: a directory, or the releases of a repository."""

    def rows(self) -> tuple[WheelRow, ...]:
        """The published rows."""

    def has_wheel(self, row: WheelRow) -> bool:
        """Whether the wheel of a row and its metadata are published or staged with the digests of the row.

        Raises `PublishError` if a published file was changed.
        """

    def put_asset(self, asset: Asset, report_progress: ProgressCallback = ignore_progress) -> None:
        """Store an asset: keep an identical one, replace an incomplete or unpublished one.

        `report_progress` receives the bytes done and the total. Raises `PublishError` if other bytes are
        published under this name.
        """

    def put_attestation(self, wheel: str, sha256: str, bundle: bytes) -> bool:
        """Store a bundle beside the staged wheel of this name and sha256, replacing an earlier bundle.

        Returns False, and changes nothing, if no such wheel is staged.
        """

    def put_rows(self, rows: Sequence[WheelRow]) -> None:
        """Store the rows of staged wheels, for `staged_rows`."""

    def staged_rows(self) -> tuple[WheelRow, ...]:
        """The rows of `put_rows` whose wheels are staged, and attested if their project is one of `ATTESTED`.

        A wheel that is published already counts, too.
        """

    def commit(self, rows: Sequence[WheelRow]) -> None:
        """Publish exactly these rows. This is the last step: until it succeeds, nothing is published.

        Raises `PublishError`, and changes nothing, for rows that would not read back (`manifest_bytes`), and
        `ConcurrentPublishError` if another run's change is not in these rows: then read the rows and change them again.
        """


def held_rows(publisher: Publisher) -> tuple[WheelRow, ...]:
    """The published rows whose wheels still exist: a release can be deleted on GitHub, a file in a directory.

    Raises `PublishError` if a published file was changed.
    """
    return tuple(row for row in publisher.rows() if publisher.has_wheel(row))


def stage(publisher: Publisher, additions: Iterable[Addition], step: BeginStep = silent_step) -> None:
    """Upload wheels without publishing them.

    Raises `PublishError` if a name is published with other bytes, or a file is neither given nor staged.
    """
    additions = tuple(additions)
    _add_rows(publisher.rows(), additions)  # refused before anything is uploaded
    for row, path in additions:
        with step(row.filename) as report_progress:
            for asset in wheel_assets(row, path) if path else ():
                publisher.put_asset(asset, report_progress)
            if not (path or publisher.has_wheel(row)):
                hint = "publish with --stage and its file first"
                raise PublishError("file is neither given nor staged", row.filename, hint)


def _add_rows(published: Iterable[WheelRow], additions: Iterable[Addition]) -> tuple[WheelRow, ...]:
    """The published rows and the added ones, sorted by file name.

    A published row of the same bytes stays, with the gates of the new row if only these verify the wheel.
    Raises `PublishError` if a name is published with other bytes.
    """
    rows = {row.filename: row for row in published}
    for row, _ in additions:
        present = rows.get(row.filename, row)
        if present.sha256 != row.sha256:
            raise PublishError(
                "already published with different content",
                row.filename,
                "a published file is never replaced: yank it (`wheelfactory publish TARGET --yank NAME --reason WHY`) "
                "and run the factory again, which builds a replacement of another name",
            )
        rows[row.filename] = merge_verified_gates(present, row)
    return tuple(rows[name] for name in sorted(rows))


def publish(publisher: Publisher, additions: Iterable[Addition], step: BeginStep = silent_step) -> tuple[WheelRow, ...]:
    """Publish wheels beside the published ones; return all rows. Raises as `stage` does, and publishes nothing then."""
    additions = tuple(additions)
    stage(publisher, additions, step)
    with step("publish"):
        return _commit(publisher, lambda rows: _add_rows(rows, additions))


def _commit(publisher: Publisher, change: ChangeRows) -> tuple[WheelRow, ...]:
    """Apply a change to the published rows and commit them; again if another run published meanwhile."""
    for left in reversed(range(_MOST_COMMITS)):
        rows = change(publisher.rows())
        try:
            publisher.commit(rows)
            break
        except ConcurrentPublishError as error:
            if not left:
                raise
            logger.info("%s; applying the change to the rows published now", error)
    return rows


def wheel_assets(row: WheelRow, path: Path) -> tuple[Asset, Asset]:
    """The wheel, and its METADATA as a file of its own for resolvers (PEP 658).

    Raises `PublishError` if the file is not the one in the row.
    """
    metadata = Wheel.open(path).metadata_bytes
    if (file_sha256(path), hashlib.sha256(metadata).hexdigest()) != (row.sha256, row.metadata_sha256):
        raise PublishError("changed since it was verified", str(path), "verify it again")
    return (Asset(row.filename, row.sha256, path), Asset(f"{row.filename}.metadata", row.metadata_sha256, metadata))


def yank(publisher: Publisher, filename: str, reason: str) -> tuple[WheelRow, ...]:
    """Yank a published wheel; its file stays for users who pinned it (PEP 592).

    Raises `PublishError` if the file is not published, or `reason` is blank.
    """
    if not reason.strip():
        raise PublishError("no reason to yank", filename, "add --reason WHY; pip shows it to users")

    def change(rows: Sequence[WheelRow]) -> tuple[WheelRow, ...]:
        if filename not in {row.filename for row in rows}:
            raise PublishError("cannot yank a file that is not published", filename, "choose one of the manifest")
        yanked = {"yanked": " ".join(reason.split())}
        return tuple(row.model_copy(update=yanked) if row.filename == filename else row for row in rows)

    return _commit(publisher, change)


def add_attestation(publisher: Publisher, bundle: bytes, source: str) -> dict[str, bool]:
    """Store an attestation bundle beside each staged wheel that it names. Publishes nothing.

    Returns, by name, whether a wheel of that sha256 is staged: a workflow attests all wheels of a run, and another run
    may have published some of them before. Signatures are verified by `verify --from`, not here.
    Raises `InputError` if it is not a bundle; `source` is its name there.
    """
    wheels = {subject.name: subject.digest.sha256 for subject in read_subjects(bundle, source)}
    return {name: publisher.put_attestation(name, sha256, bundle) for name, sha256 in sorted(wheels.items())}


def add_evidence(publisher: Publisher, validations: Iterable[Validation]) -> tuple[WheelRow, ...]:
    """Add GPU validations to the rows of their wheels, found by sha256, and publish the rows; return all of them.

    For one wheel, arch and mode, the newest validation wins.
    Raises `InputError` for a validation that is not evidence, and `PublishError` if its file is not published or newer
    evidence is. Nothing is published then.
    """
    ordered = sorted(validations, key=lambda validation: validation.time)
    return _commit(publisher, lambda rows: _add_validations(rows, ordered))


def _add_validations(published: Sequence[WheelRow], validations: Iterable[Validation]) -> tuple[WheelRow, ...]:
    rows = {row.filename: row for row in published}
    for validation in validations:
        piece = as_evidence(validation)
        row = _find_row(validation.validated, tuple(rows.values()))
        for held in row.evidence:
            if held.key == piece.key and held.time > piece.time:
                which = f"{row.filename} on {piece.arch} ({held.time:%Y-%m-%d %H:%M})"
                raise PublishError("newer evidence is already published", which, "omit this report, or validate again")
        rows[row.filename] = row.model_copy(update={"evidence": merge_evidence(*row.evidence, piece)})
    return tuple(rows.values())


def _find_row(validated: ValidatedPackage, rows: Sequence[WheelRow]) -> WheelRow:
    for row in rows:
        if row.sha256 == validated.sha256:
            return row
    name = validated.filename or f"{validated.project} {validated.version}"
    if any(row.filename == validated.filename for row in rows):
        raise PublishError("the validated file differs from the published one", name, "validate the published file")
    raise PublishError("cannot add evidence to a wheel that is not published", name, "publish the wheel first")
