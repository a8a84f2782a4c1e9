"""Publish into a directory: ``wheels/``, ``SHA256SUMS``, the manifest, and the pages generated from it.

A wheel is published once the manifest names it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.errors import PublishError
from wheelfactory.core.files import atomic_path, file_sha256, write_atomic
from wheelfactory.core.progress import ProgressCallback, ignore_progress
from wheelfactory.core.published import MANIFEST_NAME, WHEELS_FOLDER
from wheelfactory.release.bundle import BUNDLE_SUFFIX
from wheelfactory.release.manifest import WheelRow, has_row, manifest_bytes, read_manifest
from wheelfactory.release.transaction import (
    SUMS_NAME,
    Asset,
    asset_digests,
    attested_names,
    is_staged_rows,
    sha256sums,
    staged_rows_asset,
)

INDEX_FOLDER = "simple/"
"""The folder of the index. It contains only generated pages."""


@dataclass(frozen=True)
class DirectoryPublisher:
    """A release in a local directory."""

    folder: Path

    @property
    def wheels_dir(self) -> Path:
        """The folder of the wheels."""
        return self.folder / WHEELS_FOLDER

    def rows(self) -> tuple[WheelRow, ...]:
        """The rows of the manifest. Raises `PublishError` for a folder with an index but no manifest."""
        # the manifest is written before the index, so this index is not ours and must not be overwritten
        if (self.folder / "simple").exists() and not (self.folder / MANIFEST_NAME).exists():
            hint = f"choose another directory, or restore {MANIFEST_NAME} if it is a release that lost it"
            raise PublishError("not a release of this factory", str(self.folder), hint)
        return read_manifest(self.folder) if self.folder.is_dir() else ()

    def has_wheel(self, row: WheelRow) -> bool:
        """See `Publisher.has_wheel`. A published file is recognized by its size."""
        path = self.wheels_dir / row.filename
        metadata = self.wheels_dir / f"{row.filename}.metadata"
        if not (path.is_file() and metadata.is_file()):
            return False
        manifest = self.folder / MANIFEST_NAME
        # `has_row` and the size: parsing the manifest and hashing the whole release for every row would take long
        if not (manifest.is_file() and has_row(manifest.read_bytes(), row)):
            return (file_sha256(path), file_sha256(metadata)) == (row.sha256, row.metadata_sha256)
        if path.stat().st_size != row.size:
            raise _changed(path)
        return True

    def put_asset(self, asset: Asset, _report_progress: ProgressCallback = ignore_progress) -> None:
        """See `Publisher.put_asset`. A file that no row names comes from an interrupted run, so it is replaced."""
        path = self.wheels_dir / asset.name
        if path.is_file() and file_sha256(path) == asset.sha256:
            return
        if path.is_file() and any(asset.name in (row.filename, f"{row.filename}.metadata") for row in self.rows()):
            raise _changed(path)
        self._store(path, asset)

    def put_attestation(self, wheel: str, sha256: str, bundle: bytes) -> bool:
        """See `Publisher.put_attestation`. Here a bundle can be added to a published wheel."""
        path = self.wheels_dir / wheel
        if not path.is_file() or file_sha256(path) != sha256:
            return False
        asset = Asset.from_content(f"{wheel}{BUNDLE_SUFFIX}", bundle)
        self._store(self.wheels_dir / asset.name, asset)
        return True

    def _store(self, path: Path, asset: Asset) -> None:
        with atomic_path(path) as written:
            if isinstance(asset.content, bytes):
                written.write_bytes(asset.content)
            else:
                shutil.copyfile(asset.content, written)
            if file_sha256(written) != asset.sha256:
                raise PublishError("damaged while copying", str(path), "check the disk and run the same command again")

    def put_rows(self, rows: Sequence[WheelRow]) -> None:
        """See `Publisher.put_rows`."""
        asset = staged_rows_asset(rows)
        self._store(self.folder / asset.name, asset)

    def staged_rows(self) -> tuple[WheelRow, ...]:
        """See `Publisher.staged_rows`."""
        rows = (row for path in self._staged() for row in read_manifest(path) if self.has_wheel(row))
        return tuple(row for row in rows if all((self.wheels_dir / name).is_file() for name in attested_names(row)))

    def _staged(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*") if is_staged_rows(path.name))

    def commit(self, rows: Sequence[WheelRow]) -> None:
        """Write SHA256SUMS, then the manifest. Raises `PublishError`, and writes nothing, for invalid rows."""
        manifest = manifest_bytes(rows)
        sums = {f"{WHEELS_FOLDER}/{name}": digest for name, digest in asset_digests(rows).items()}
        self._write(SUMS_NAME, sha256sums(sums))
        self._write(MANIFEST_NAME, manifest)
        for path in self._staged():
            self._remove(path)

    def write_site(self, pages: Mapping[str, bytes]) -> None:
        """Rewrite the generated pages."""
        write_pages(self.folder, pages)

    def _write(self, name: str, data: bytes) -> None:
        write_atomic(self.folder / name, data)

    def _remove(self, path: Path) -> None:
        path.unlink()


@dataclass(frozen=True)
class DirectoryDryRun(DirectoryPublisher):
    """A release in a local directory that shows what it would write, and writes nothing."""

    show: Callable[[str], None]

    def write_site(self, pages: Mapping[str, bytes]) -> None:
        """Show the number of pages."""
        self.show(f"write {self.folder / 'simple'}  {count_index_pages(pages)} pages")

    def _store(self, path: Path, asset: Asset) -> None:
        self.show(f"write {path}  {asset.size} bytes")

    def _write(self, name: str, data: bytes) -> None:
        self.show(f"write {self.folder / name}  {len(data)} bytes")

    def _remove(self, path: Path) -> None:
        self.show(f"delete {path}")


def _changed(path: Path) -> PublishError:
    hint = "restore it from a backup, or remove it and run the same command again"
    return PublishError("a published file was changed", str(path), hint)


def write_pages(folder: Path, pages: Mapping[str, bytes]) -> None:
    """Write pages by their paths below `folder`, and delete every other page of its index."""
    index = [name for name in pages if name.startswith(INDEX_FOLDER)]
    others = [name for name in pages if not name.startswith(INDEX_FOLDER)]
    # the index last, and its leaves before the pages that link to them: no link is ever broken
    for name in [*others, *sorted(index, key=lambda name: (-name.count("/"), name))]:
        write_atomic(folder / name, pages[name])
    for path in (folder / INDEX_FOLDER).rglob("index.html"):
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for path in sorted((folder / INDEX_FOLDER).rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def count_index_pages(pages: Mapping[str, bytes]) -> int:
    """The number of index pages among these."""
    return sum(name.startswith(INDEX_FOLDER) for name in pages)
