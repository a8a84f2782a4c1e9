"""Kernel archives: the objects of a kernel set, or of one shard of it, as one file that is checked as it is read.

``<set id>-<first 16 digits of the key>[.shard-I-of-N][.partial].tar.zst`` has the members ``manifest.json``, then
``objects/<sha256>``, sorted, each content once. Only what its sha256 confirms gets into a store.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import BuildError, FactoryError, InputError
from wheelfactory.core.files import atomic_path, scratch_dir
from wheelfactory.kernels.archive_manifest import (
    ARCHIVE_SUFFIX,
    PARTIAL_SUFFIX,
    ArchiveManifest,
    make_archive_manifest,
    parse_archive_manifest,
)
from wheelfactory.kernels.archive_stream import ArchiveStream, DamagedStreamError, open_writer, write_member
from wheelfactory.kernels.compiler.store import ObjectRecord, Store

MANIFEST_NAME = "manifest.json"
_SHARD_NAME = ".shard-"

_LARGEST_MANIFEST = 1 << 23
"""Bytes; the 2,775 objects of 2.8.3 have 1.3 MB."""
_MOST_TIMES = 200
"""How many times its size an archive may unpack to; as for bundles, four times what code for 25 GPUs does."""
_ALWAYS = 1 << 26
"""Bytes that an archive may unpack to whatever its size."""
_CHUNK = 1 << 20
_MOST_NAMED = 3
"""Sources that an error names; with thousands, the first ones tell what kind they are of."""


class IncompleteSetError(BuildError):
    """Sources of a set or a shard have no object yet."""


@dataclass(frozen=True)
class UnpackResult:
    """What came out of an archive."""

    store: Store
    damaged: tuple[str, ...]
    """Sources of objects whose sha256 is not that of the manifest; they are to be compiled again."""


def pack_archive(
    store: Store,
    set_id: str,
    folder: Path,
    shard: str | None,
    names: Collection[str] | None = None,
    *,
    partial: bool = False,
) -> Path:
    """Write the archive of a set, or of one shard of it (``2/8``) with the sources `names`; its path.

    A shard without names is what the store has. With `partial` objects may be missing; the archive's name says so. The
    same store gives the same bytes. Raises `BuildError` if an object is missing or is not what the journal says, and
    `FactoryError` if there is no room.
    """
    finished = store.read_records()
    wanted = frozenset((finished if shard else store.key.sources) if names is None else names)
    entries = {name: entry for name, entry in finished.items() if name in wanted}
    if not wanted or (partial and not entries):
        raise BuildError("nothing to pack", f"{store.folder} has no objects", "compile the kernels first")
    if not partial:
        require_complete(wanted, entries)
    manifest = make_archive_manifest(store.key, set_id, shard, entries.values(), wanted)
    path = folder / manifest.file_name
    with _written(path), atomic_path(path) as written, written.open("wb") as file, open_writer(file) as packed:
        content = manifest.to_bytes()
        write_member(packed, MANIFEST_NAME, len(content), [content])
        for first, *others in manifest.group_by_content():
            write_member(packed, f"objects/{first.sha256}", first.size, _object(store, first))
            for entry in others:
                deque(_object(store, entry), maxlen=0)
    return path


def require_complete(wanted: Collection[str], have: Container[str], note: str = "") -> None:
    """Raise `IncompleteSetError`, with a note for its end, if a set or shard is not whole."""
    missing = sorted(source for source in wanted if source not in have)
    if missing:
        which = f"{len(missing)} of {len(wanted)} sources have no object: {shorten_names(missing)}{note}"
        raise IncompleteSetError(
            "kernel set is not whole", which, "compile what is missing, by the same command as before"
        )


def _object(store: Store, entry: ObjectRecord) -> Iterator[bytes]:
    """The content of an object, checked at its end."""
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
        why = "it is gone"
    else:
        if size == entry.size and digest.hexdigest() == entry.sha256:
            return
        why = f"its journal says {entry.size} bytes and sha256 {entry.sha256[:12]}..."
    raise BuildError("corrupt object", f"{store.object_path(entry.source)} ({why})", f"compile {entry.source} again")


def read_archive_manifest(path: Path) -> ArchiveManifest:
    """What an archive says of itself; its objects are not read. Raises `InputError` if it is no kernel archive."""
    with _opened(path) as tape:
        return _manifest(tape, path)


def _manifest(tape: ArchiveStream, path: Path) -> ArchiveManifest:
    name, size = tape.read_header()
    if name != MANIFEST_NAME:
        raise DamagedStreamError(f"it begins with {name}, not with {MANIFEST_NAME}")
    if size > _LARGEST_MANIFEST:
        raise DamagedStreamError(f"its manifest has {size} bytes, more than {_LARGEST_MANIFEST}")
    return parse_archive_manifest(b"".join(tape.read_content(size)), str(path))


def _refuse_bomb(manifest: ArchiveManifest, path: Path) -> None:
    unpacked = manifest.totals["size"]  # on disk, where sources of one content have a file each
    if unpacked > _MOST_TIMES * path.stat().st_size + _ALWAYS:
        raise DamagedStreamError(f"it would unpack to {unpacked} bytes, more than {_MOST_TIMES} times its size")


def verify_archive(path: Path) -> ArchiveManifest:
    """What an archive says of itself, after all of it was read. Raises `InputError` if any of it is damaged."""
    with _opened(path) as tape:
        manifest = _manifest(tape, path)
        _refuse_bomb(manifest, path)
        for same in manifest.group_by_content():
            if not _read(tape, same[0], len):
                raise DamagedStreamError(f"the object of {same[0].source} is not what its sha256 says")
        tape.read_end()
    return manifest


def unpack_archive(path: Path, kernels: Path) -> UnpackResult:
    """Put the objects of an archive into the store of its key below `kernels`; what is there already stays.

    Raises `InputError` if the archive is cut short, damaged or something else; the objects before that are in the store
    and are good. Raises `FactoryError` if there is no room.
    """
    with _opened(path) as tape:
        manifest = _manifest(tape, path)
        _refuse_bomb(manifest, path)
        store = Store(kernels, manifest.set_key)
        damaged: list[str] = []
        with _written(store.folder), scratch_dir(store.folder) as scratch:
            store.create()
            known = store.read_records()
            for same in manifest.group_by_content():
                new = [entry for entry in same if not _is_there(store, known.get(entry.source), entry)]
                if not _take(tape, store, same[0], new, scratch / "object"):
                    damaged += [entry.source for entry in new]
        tape.read_end()
    return UnpackResult(store, tuple(sorted(damaged)))


def _is_there(store: Store, known: ObjectRecord | None, entry: ObjectRecord) -> bool:
    kept = store.object_path(entry.source)
    return known is not None and known.sha256 == entry.sha256 and kept.is_file() and file_sha256(kept) == entry.sha256


def _read(tape: ArchiveStream, first: ObjectRecord, sink: Callable[[memoryview], object]) -> bool:
    """Hand on the next content, which must be that of `first` by name and size; whether it is by sha256, too."""
    name, size = tape.read_header()
    if (name, size) != (f"objects/{first.sha256}", first.size):
        expected = f"objects/{first.sha256} of {first.size} bytes, as its manifest says"
        raise DamagedStreamError(f"{name} of {size} bytes stands in it instead of {expected}")
    digest = hashlib.sha256()
    for piece in tape.read_content(size):
        digest.update(piece)
        sink(piece)
    return digest.hexdigest() == first.sha256


def _take(tape: ArchiveStream, store: Store, first: ObjectRecord, new: Sequence[ObjectRecord], written: Path) -> bool:
    """Read the next content, and keep it as the objects of `new` if it is what the manifest says; whether it was."""
    with written.open("wb") as file:
        if not _read(tape, first, file.write):
            return False
    for entry in new[1:]:
        store.save_object(written, entry)
    for entry in new[:1]:
        written.replace(store.object_path(entry.source))
        store.append_record(entry)
    return True


def shorten_names(names: Sequence[str]) -> str:
    """The first of these names and how many more there are, for an error."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def find_archives(folder: Path, set_id: str, *, partial: bool = False) -> tuple[Path, ...]:
    """The archives of a set in a folder, of whatever key, whole sets and shards, by name; or the `partial` ones."""
    unfinished = re.escape(PARTIAL_SUFFIX) if partial else ""
    name = re.compile(
        rf"{re.escape(set_id)}-[0-9a-f]{{16}}(\.shard-[0-9]+-of-[0-9]+)?{unfinished}{re.escape(ARCHIVE_SUFFIX)}"
    )
    return tuple(sorted(path for path in folder.glob(f"*{ARCHIVE_SUFFIX}") if name.fullmatch(path.name)))


def is_shard_archive(path: Path) -> bool:
    """Whether the archive of that name is of a shard."""
    return _SHARD_NAME in path.name


def drop_redundant_shards(archives: Sequence[Path]) -> tuple[Path, ...]:
    """Those of these archives that bring something: a shard brings nothing beside the whole set of its key."""
    whole = {path.name.removesuffix(ARCHIVE_SUFFIX) for path in archives if not is_shard_archive(path)}
    return tuple(
        path for path in archives if not is_shard_archive(path) or path.name.partition(_SHARD_NAME)[0] not in whole
    )


@contextmanager
def _opened(path: Path) -> Iterator[ArchiveStream]:
    hint = "fetch it again, or pack it again"
    try:
        with path.open("rb") as file:
            yield ArchiveStream(file)
    except FileNotFoundError:
        raise InputError("no such kernel archive", str(path), "see `wheelfactory kernels --help`") from None
    except DamagedStreamError as error:
        raise InputError("damaged kernel archive", f"{path}: {error}", hint) from None
    except OSError as error:
        raise InputError("cannot read kernel archive", f"{path} ({error.strerror})", hint) from None


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Turns what goes wrong while writing into an error that says where."""
    try:
        yield
    except OSError as error:
        which = f"{error.filename or path} ({error.strerror})"
        raise FactoryError("cannot write kernels", which, "make room, then run the same command again") from None
