"""Kernel archives: the objects of a kernel set, or of one shard, in one file that is verified while it is read.

``<set id>-<first 16 digits of the key>[.shard-I-of-N].tar.zst`` contains ``manifest.json`` and
``objects/<sha256>``, sorted and deduplicated. Only objects with the right sha256, for the arch and of the source that
the manifest names, get into a store.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import deque
from collections.abc import Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from wheelfactory.core.errors import BuildError, FactoryError, InputError
from wheelfactory.core.files import atomic_path, scratch_dir
from wheelfactory.core.progress import logger
from wheelfactory.core.wrap import shorten_names
from wheelfactory.kernels.archive_format import (
    ARCHIVE_SUFFIX,
    ArchiveManifest,
    ArchiveStream,
    DamagedStreamError,
    make_archive_manifest,
    open_writer,
    parse_archive_manifest,
    write_member,
)
from wheelfactory.kernels.compiler.objects import require_object
from wheelfactory.kernels.compiler.store import ObjectRecord, Store
from wheelfactory.kernels.kernel_set import Proof
from wheelfactory.wheel.elf.image import DamagedElfError

MANIFEST_NAME = "manifest.json"

# the manifest of the 2,775 objects of 2.8.3 is 1.3 MB
_MAX_MANIFEST_BYTES = 1 << 24
# maximum ratio of unpacked to packed size, against decompression bombs. Code for 25 GPUs has a ratio of 50
_MAX_RATIO = 200
# unpacked size that is exempt from the ratio limit, because the manifest dominates a small archive
_ALWAYS_ALLOWED_BYTES = 1 << 26
_CHUNK = 1 << 20


class IncompleteSetError(BuildError):
    """Some sources of a set or shard have no object yet."""


def pack_archive(
    store: Store,
    set_id: str,
    folder: Path,
    shard: str | None,
    names: Collection[str] | None = None,
    *,
    partial: bool = False,
    proof: Proof | None = None,
) -> Path:
    """Write the archive of a set, or of one shard (``2/8``) with the sources `names`, and return its path.

    Without `names`, the archive of a shard has every object in the store. With `partial`, objects may be missing. The
    same store gives the same bytes. Raises `BuildError` if an object is missing or damaged, `FactoryError` if the file
    cannot be written.
    """
    finished = store.read_records()
    expected = frozenset((finished if shard else store.key.sources) if names is None else names)
    entries = {name: entry for name, entry in finished.items() if name in expected}
    if not expected or (partial and not entries):
        raise BuildError("no objects to pack", str(store.folder), "compile the kernels first")
    if not partial:
        require_complete(expected, entries)
    manifest = replace(make_archive_manifest(store.key, set_id, shard, entries.values(), expected), proof=proof)
    path = folder / manifest.file_name
    with (
        _report_write_errors(path),
        atomic_path(path) as written,
        written.open("wb") as file,
        open_writer(file) as packed,
    ):
        content = manifest.to_bytes()
        write_member(packed, MANIFEST_NAME, len(content), [content])
        # identical contents are stored once, but every object is verified
        for first, *others in manifest.group_by_content():
            write_member(packed, f"objects/{first.sha256}", first.size, _read_object(store, first))
            for entry in others:
                deque(_read_object(store, entry), maxlen=0)
    return path


def require_complete(expected: Collection[str], available: Container[str], note: str = "") -> None:
    """Raise `IncompleteSetError` if a source has no object; its message ends with `note`."""
    missing = sorted(source for source in expected if source not in available)
    if missing:
        which = f"{len(missing)} of {len(expected)} sources have no object: {shorten_names(missing)}{note}"
        hint = "run the same compile commands again: they compile only missing kernels"
        raise IncompleteSetError("incomplete kernel set", which, hint)


def _read_object(store: Store, entry: ObjectRecord) -> Iterator[bytes]:
    """Yield the content of an object. After the last chunk, raises `BuildError` if it does not match the journal."""
    digest, size = hashlib.sha256(), 0
    try:
        with store.object_path(entry.source).open("rb") as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
                size += len(piece)
                if size > entry.size:
                    break
                yield piece
    except FileNotFoundError:
        why = "missing"
    else:
        if size == entry.size and digest.hexdigest() == entry.sha256:
            return
        why = f"the journal records {entry.size} bytes and sha256 {entry.sha256[:12]}..."
    raise BuildError("damaged object", f"{store.object_path(entry.source)} ({why})", f"compile {entry.source} again")


def read_archive_manifest(path: Path) -> ArchiveManifest:
    """Read the manifest of an archive, but not its objects. Raises `InputError` if it is not a kernel archive."""
    with _open_archive(path) as stream:
        return _read_manifest(stream, path)


def _read_manifest(stream: ArchiveStream, path: Path) -> ArchiveManifest:
    name, size = stream.read_header()
    if name != MANIFEST_NAME:
        raise DamagedStreamError(f"its first member is {name}, not {MANIFEST_NAME}")
    if size > _MAX_MANIFEST_BYTES:
        raise DamagedStreamError(f"its manifest has {size} bytes, the limit is {_MAX_MANIFEST_BYTES}")
    return parse_archive_manifest(b"".join(stream.read_content(size)), str(path))


def _require_sane_size(manifest: ArchiveManifest, path: Path) -> None:
    # a store keeps one file per object, even for identical content
    unpacked = sum(entry.size for entry in manifest.objects.values())
    if unpacked > _MAX_RATIO * path.stat().st_size + _ALWAYS_ALLOWED_BYTES:
        raise DamagedStreamError(f"it would unpack to {unpacked} bytes, over {_MAX_RATIO} times its size")


def unpack_archive(path: Path, kernels: Path) -> ArchiveManifest:
    """Add an archive's objects to the store for its key, under `kernels`; keep existing objects.

    Returns its manifest without the objects that are not what it says of them.

    An object that is not for the target of the set, or names another source, is left out as a damaged one is.
    Raises `InputError` if the archive is truncated, damaged or not a kernel archive; objects read before the damage are
    verified and kept. Raises `FactoryError` if objects cannot be written.
    """
    with _open_archive(path) as stream:
        manifest = _read_manifest(stream, path)
        _require_sane_size(manifest, path)
        store = Store(kernels, manifest.set_key)
        intact: dict[str, ObjectRecord] = {}
        damaged = 0
        with _report_write_errors(store.folder), scratch_dir(kernels) as scratch:
            store.create()
            known = {(record.source, record.sha256) for record in store.read_records().values()}
            for duplicates in manifest.group_by_content():
                kept = [one for one in duplicates if (one.source, one.sha256) in known and store.has_object(one)]
                new = [entry for entry in duplicates if entry not in kept]
                if _unpack_object(stream, store, duplicates[0], new, scratch / "object"):
                    intact |= {entry.source: entry for entry in duplicates}
                else:
                    damaged += len(new)
        stream.read_end()
    if damaged:
        logger.warning("%s: %d objects are damaged and will be compiled again", path.name, damaged)
    return replace(manifest, objects=intact)


def _unpack_object(
    stream: ArchiveStream, store: Store, expected: ObjectRecord, new: Sequence[ObjectRecord], scratch_file: Path
) -> bool:
    """Read the next member, and save it as the objects of `new`. Return whether it is what its records say."""
    name, size = stream.read_header()
    if (name, size) != (f"objects/{expected.sha256}", expected.size):
        listed = f"objects/{expected.sha256} of {expected.size} bytes"
        raise DamagedStreamError(f"it has {name} of {size} bytes where its manifest has {listed}")
    digest = hashlib.sha256()
    with scratch_file.open("wb") as file:
        for piece in stream.read_content(size):
            digest.update(piece)
            file.write(piece)
    if digest.hexdigest() != expected.sha256:
        return False
    try:
        for entry in new:
            if len(entry.targets) == 1:  # objects of several were compiled as a whole
                require_object(scratch_file, entry.source, entry.targets[0])
    except DamagedElfError as error:
        logger.warning("%s of the archive is left out: %s", expected.source, error)
        return False
    for entry in new:
        copy = scratch_file.with_name("copy")
        shutil.copyfile(scratch_file, copy)
        store.save_object(copy, entry)
    return True


def find_archives(folder: Path, set_id: str) -> tuple[Path, ...]:
    """Find a set's archives in a folder, including shards, for any key, sorted by name."""
    name = re.compile(rf"{re.escape(set_id)}-[0-9a-f]{{16}}(\.shard-[0-9]+-of-[0-9]+)?{re.escape(ARCHIVE_SUFFIX)}")
    return tuple(sorted(path for path in folder.glob(f"*{ARCHIVE_SUFFIX}") if name.fullmatch(path.name)))


@contextmanager
def _open_archive(path: Path) -> Iterator[ArchiveStream]:
    hint = "download it again, or compile it again"
    try:
        with path.open("rb") as file:
            yield ArchiveStream(file)
    except FileNotFoundError:
        hint = "check the path; `wheelfactory kernels SET` makes an archive"
        raise InputError("no such kernel archive", str(path), hint) from None
    except DamagedStreamError as error:
        raise InputError("damaged kernel archive", f"{path}: {error}", hint) from None
    except OSError as error:
        raise InputError("cannot read kernel archive", f"{path} ({error.strerror})", hint) from None


@contextmanager
def _report_write_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` while writing into a `FactoryError` that names the path."""
    try:
        yield
    except OSError as error:
        which = f"{error.filename or path} ({error.strerror})"
        raise FactoryError("cannot write kernels", which, "free disk space, then run the same command again") from None
