"""Finished kernel sets, kept where later runs and other machines find them again by name.

An archive holds compiled code that ends up in wheels. A shelf says that it is byte for byte what was put there, not
that it is good: whoever may write to it decides what is linked. So only what is complete is put, what is there is never
replaced, and only the job that joins a set puts anything.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import FactoryError, InputError, PublishError
from wheelfactory.core.files import atomic_path, scratch_dir, write_atomic
from wheelfactory.core.progress import logger
from wheelfactory.kernels.archive import read_archive_manifest
from wheelfactory.kernels.archive_manifest import ARCHIVE_SUFFIX

_RECORD = "SHA256SUMS"
_RECORDED = re.compile(rf"([0-9a-f]{{64}})  ([0-9A-Za-z][0-9A-Za-z._+-]*{re.escape(ARCHIVE_SUFFIX)})\n")


class ArchiveHost(Protocol):
    """A place for archives, each under a name of its own (`kernel_set.kept_name`)."""

    def has(self, name: str) -> bool:
        """Whether an archive is kept under a name, all of it."""

    def upload(self, name: str, archive: Path) -> None:
        """Keep an archive under a name; nothing to do if the same bytes are there.

        Raises `PublishError` if others are.
        """

    def download(self, name: str, folder: Path) -> Path | None:
        """Copy what is kept under a name into a folder, under its own file name; None if nothing is.

        It is there whole or not at all, and has the sha256 that was recorded when it was put. Raises `PublishError` if
        it is damaged where it is kept.
        """


@dataclass(frozen=True)
class DirectoryArchiveHost:
    """A shelf in a directory: ``kernels/<name>/`` has the archive, and SHA256SUMS, which is what makes it kept."""

    folder: Path

    def has(self, name: str) -> bool:
        """See `Shelf.has`."""
        return self._recorded(name) is not None

    def upload(self, name: str, archive: Path) -> None:
        """See `Shelf.put`."""
        kept, digest, place = self._recorded(name), file_sha256(archive), self._place(name)
        if kept == (digest, archive.name):
            return
        if kept:
            hint = "what is kept is never replaced: take that one (wheelfactory kernels SET --download)"
            raise PublishError("another archive is on the shelf", f"{place / kept[1]} is not {archive}", hint)
        _copy(archive, place / archive.name, digest)
        write_atomic(place / _RECORD, f"{digest}  {archive.name}\n".encode())

    def download(self, name: str, folder: Path) -> Path | None:
        """See `Shelf.take`."""
        kept = self._recorded(name)
        if kept is None:
            return None
        digest, file_name = kept
        _copy(self._place(name) / file_name, folder / file_name, digest)
        return folder / file_name

    def _place(self, name: str) -> Path:
        return self.folder / "kernels" / name

    def _recorded(self, name: str) -> tuple[str, str] | None:
        """sha256 and file name of the archive; None if none was put, or not to the end, or it is gone."""
        record = self._place(name) / _RECORD
        found = _RECORDED.fullmatch(record.read_text(encoding="utf-8", errors="replace")) if record.is_file() else None
        return (found[1], found[2]) if found and (record.parent / found[2]).is_file() else None


def _copy(archive: Path, copy: Path, digest: str) -> None:
    """Copy an archive whole or not at all. Raises `PublishError` if the copy is not what it should be."""
    with atomic_path(copy) as written:
        shutil.copyfile(archive, written)
        if file_sha256(written) != digest:
            hint = "remove its folder from the shelf, and keep the set again: kernels SET --merge --upload"
            raise PublishError("not what was put on the shelf", f"{archive}: its sha256 is not {digest[:12]}...", hint)


def upload_set(shelf: ArchiveHost, name: str, archive: Path) -> None:
    """Put the archive of a whole set on a shelf, unless one is there already.

    That one serves wheels, and another compile of the same objects has other costs in it, so other bytes. Raises what
    `Shelf.put` raises.
    """
    if shelf.has(name):
        logger.info("already on the shelf, and left as it is: %s", name)
    else:
        shelf.upload(name, archive)


def download_set(shelf: ArchiveHost, name: str, set_id: str, folder: Path) -> Path:
    """Take the archive of a kernel set from a shelf into a folder; its path there.

    Raises `FactoryError` if it is not kept, `InputError` if what is kept is no archive of the whole set, and what
    `Shelf.take` raises. The folder then has what it had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_dir(folder) as scratch:
        taken = shelf.download(name, scratch)
        if taken is None:
            hint = f"compile it: wheelfactory kernels {set_id} --shard I/N, then --merge --upload"
            raise FactoryError("kernel set is not on the shelf", name, hint)
        manifest = read_archive_manifest(taken)
        if (manifest.set_id, manifest.shard, manifest.file_name) != (set_id, None, taken.name) or manifest.is_partial:
            hint = "find out who put it there; take nothing from this shelf before that"
            raise InputError("not the kernel set that was asked for", f"{name} has {taken.name}", hint)
        return taken.replace(folder / taken.name)
