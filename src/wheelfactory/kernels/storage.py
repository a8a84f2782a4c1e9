"""Where compiled kernels are kept for later runs: archive hosts, and this machine's store within a size limit.

An archive holds compiled code that is linked into wheels. On GitHub it counts as stored only with the attestation of
the workflow that made it (`release.github.archive_host`). A directory guarantees only that an archive is byte for byte
what was uploaded, so everyone with write access to it is trusted. Only complete sets are uploaded, and an archive is
never replaced.

The local store is kept within its size by removing the sets that were not used for the longest time.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

from wheelfactory.core.errors import FactoryError, InputError, PublishError
from wheelfactory.core.files import (
    atomic_path,
    file_sha256,
    is_locked,
    remove_scratch,
    running_since,
    scratch_dir,
    write_atomic,
)
from wheelfactory.core.progress import logger
from wheelfactory.kernels.archive import read_archive_manifest
from wheelfactory.kernels.archive_format import ARCHIVE_SUFFIX
from wheelfactory.kernels.compiler.store import last_used, lock_sets
from wheelfactory.kernels.kernel_set import require_proof

_CHECKSUM_FILE = "SHA256SUMS"
_CHECKSUM_LINE = re.compile(rf"([0-9a-f]{{64}})  ([0-9A-Za-z][0-9A-Za-z._+-]*{re.escape(ARCHIVE_SUFFIX)})\n")


class ArchiveHost(Protocol):
    """Stores each archive under its own name (`kernel_set.stored_set_name`)."""

    def has(self, name: str) -> bool:
        """Whether the host has a complete archive of this name.

        Raises `VerificationError` if the host requires attestations and the archive has no valid one.
        """

    def upload(self, name: str, archive: Path) -> Mapping[str, str]:
        """Store an archive under a name; do nothing if the host already has the same bytes.

        Returns the sha256, by file name, of what must be attested before it counts as stored; empty for a host without
        attestations. Raises `PublishError` if it has other bytes under that name.
        """

    def download(self, name: str, folder: Path) -> Path | None:
        """Copy the archive of a name into a folder, and return its path; None if the host has none.

        The copy is complete and its sha256 is verified. Raises `PublishError` if the host's archive is damaged, and
        `VerificationError` as `has` does.
        """


@dataclass(frozen=True)
class DirectoryArchiveHost:
    """A directory with ``kernels/<name>/``: the archive, and SHA256SUMS, which is written last and completes it."""

    folder: Path

    def has(self, name: str) -> bool:
        """See `ArchiveHost.has`."""
        return self._find_record(name) is not None

    def upload(self, name: str, archive: Path) -> Mapping[str, str]:
        """See `ArchiveHost.upload`. Nobody signs in a directory."""
        stored, digest, archive_folder = self._find_record(name), file_sha256(archive), self._archive_folder(name)
        if stored == (digest, archive.name):
            return {}
        if stored:
            hint = "a stored archive is never replaced: use it (wheelfactory kernels SET --download)"
            which = f"{archive_folder / stored[1]} differs from {archive}"
            raise PublishError("the archive host has another archive of this name", which, hint)
        _copy(archive, archive_folder / archive.name, digest)
        write_atomic(archive_folder / _CHECKSUM_FILE, f"{digest}  {archive.name}\n".encode())
        return {}

    def download(self, name: str, folder: Path) -> Path | None:
        """See `ArchiveHost.download`."""
        stored = self._find_record(name)
        if stored is None:
            return None
        digest, file_name = stored
        _copy(self._archive_folder(name) / file_name, folder / file_name, digest)
        return folder / file_name

    def _archive_folder(self, name: str) -> Path:
        return self.folder / "kernels" / name

    def _find_record(self, name: str) -> tuple[str, str] | None:
        """Return the sha256 and the file name of the archive; None if it is missing or its upload was interrupted."""
        record = self._archive_folder(name) / _CHECKSUM_FILE
        text = record.read_text(encoding="utf-8", errors="replace") if record.is_file() else ""
        found = _CHECKSUM_LINE.fullmatch(text)
        return (found[1], found[2]) if found and (record.parent / found[2]).is_file() else None


def _copy(archive: Path, copy: Path, digest: str) -> None:
    """Copy an archive atomically. Raises `PublishError` if the copy's sha256 is wrong."""
    with atomic_path(copy) as written:
        shutil.copyfile(archive, written)
        if file_sha256(written) != digest:
            hint = "remove its folder, and upload the set again: wheelfactory kernels SET --merge --upload"
            which = f"{archive}: its sha256 is not {digest[:12]}..."
            raise PublishError("damaged archive on the archive host", which, hint)


def upload_set(host: ArchiveHost, name: str, archive: Path) -> Mapping[str, str]:
    """Upload the archive of a complete set, unless the host already has one.

    Returns what must be attested. Raises `InputError` if its kernels were not executed (`require_proof`), and as
    `ArchiveHost.upload` and `ArchiveHost.has` do.
    """
    # keep the stored archive: a new one has different bytes, because its manifest holds measured costs
    if host.has(name):
        logger.info("already stored, and not replaced: %s", name)
        return {}
    manifest = read_archive_manifest(archive)
    require_proof(manifest.set_id, manifest.set_key, manifest.proof)
    return host.upload(name, archive)


def download_set(host: ArchiveHost, name: str, set_id: str, folder: Path) -> Path:
    """Download the archive of a kernel set into a folder, and return its path.

    Raises `FactoryError` if the host has none, `InputError` if its archive is not the complete set or its kernels were
    not executed (`require_proof`), and the errors of `ArchiveHost.download`. After an error the folder is unchanged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_dir(folder) as scratch:
        archive = host.download(name, scratch)
        if archive is None:
            hint = f"compile it: wheelfactory kernels {set_id} --shard I/N, then --merge --upload"
            raise FactoryError("no archive of this kernel set on the archive host", name, hint)
        manifest = read_archive_manifest(archive)
        if (manifest.set_id, manifest.shard, manifest.file_name) != (set_id, None, archive.name) or manifest.is_partial:
            hint = "someone else may have write access to this host: find out who uploaded this archive"
            raise InputError("unexpected archive on the archive host", f"{name} has {archive.name}", hint)
        require_proof(set_id, manifest.set_key, manifest.proof)
        logger.info("%s: %s", archive.name, manifest.proof or "host code")
        return archive.replace(folder / archive.name)


_GB = 1000**3


@contextmanager
def keep_used_sets(kernels: Path) -> Iterator[None]:
    """Let no `limit_store`, of any process, remove a set of the store `kernels` that is used during the block."""
    # `limit_store` keeps sets used since the oldest scratch folder (`running_since`), which is this one or older
    with scratch_dir(kernels):
        yield


def limit_store(kernels: Path, max_bytes: int) -> None:
    """Remove sets from the store `kernels` until the objects of the remaining sets have at most `max_bytes`.

    The set that was not used for the longest time goes first. Sets in use stay, even if they have more bytes. Logs what
    is removed.
    """
    remove_scratch(kernels)  # leftovers of killed runs, among them sets that a killed run was removing
    with scratch_dir(kernels) as trash:
        removed, total = _move_sets(kernels, trash, max_bytes)
    for folder, used, size in removed:
        day = datetime.fromtimestamp(used / 1e9, timezone.utc).date()
        logger.info("removed kernels last used on %s: %s, %.2f GB freed", day, folder, size / _GB)
    if total > max_bytes:
        text = "the kernels in use have %.2f GB, more than the limit of %.2f GB: keeping them"
        logger.warning(text, total / _GB, max_bytes / _GB)


def _move_sets(kernels: Path, trash: Path, max_bytes: int) -> tuple[list[tuple[Path, int, int]], int]:
    """Move sets to `trash`; return the folder, the last use and the bytes of each, and the bytes of the others."""
    removed = []
    with lock_sets(kernels):  # so no command begins to use a set that was found to be unused
        used = {folder: when for folder in kernels.iterdir() if (when := last_used(folder)) is not None}
        sizes = {folder: sum(path.stat().st_size for path in folder.glob("objects/*")) for folder in used}
        total, started = sum(sizes.values()), running_since(kernels)
        for folder in sorted(used, key=used.__getitem__):
            # a compile in a container can outlive its command, but it keeps its locks
            if total <= max_bytes or used[folder] >= started or any(map(is_locked, folder.glob("lock*"))):
                continue
            folder.rename(trash / folder.name)  # at once, so nobody sees half of a set
            removed.append((folder, used[folder], sizes[folder]))
            total -= sizes[folder]
    return removed, total
