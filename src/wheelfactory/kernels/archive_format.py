"""The format of a kernel archive: its manifest, and the tar stream inside zstandard, read once from start to end.

The manifest names the kernel set, its objects, how each was compiled and what it cost. The stream is a strict subset of
tar: regular files with one plain header each, so that a hostile archive cannot create links or devices, or exhaust
memory by long names. Sources: POSIX.1-1988 (ustar) for the header, RFC 8878 for zstandard.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import IO

import zstandard

from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.strict import parse_record
from wheelfactory.kernels.compiler.costs import Shard
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey
from wheelfactory.kernels.kernel_set import Proof

# the size field of a tar header has 11 octal digits
_MAX_OBJECT_BYTES = (1 << 33) - 1
# nesting levels of key parts; ours have 2
_MAX_KEY_DEPTH = 8
_SET_ID = re.compile("[0-9A-Za-z][0-9A-Za-z._+-]{0,99}")

ARCHIVE_SUFFIX = ".tar.zst"


def shard_suffix(shard: str | None) -> str:
    """Return the suffix of a shard archive's name: ``.shard-2-of-8`` for ``2/8``, empty for a whole set."""
    return f".shard-{shard.replace('/', '-of-')}" if shard else ""


def archive_set_id(file_name: str) -> str:
    """Return the id of the set whose complete archive has this file name; empty if it is no such name."""
    found = re.fullmatch(rf"(.+)-[0-9a-f]{{16}}{re.escape(ARCHIVE_SUFFIX)}", file_name)
    return found[1] if found else ""


@dataclass(frozen=True)
class ArchiveManifest:
    """The content of ``manifest.json`` in a kernel archive.

    Raises `ValueError` for anything inconsistent, at the first problem: a hostile manifest could have millions.
    """

    set_id: str
    """The readable name of the kernel set. Only the key identifies it."""
    set_key: SetKey
    """The key of the whole set, even in the archive of a shard."""
    shard: str | None
    """Such as ``2/8``; None for a whole set."""
    expected: tuple[str, ...]
    """Sorted names of the sources that a complete archive covers: the shard's, or the whole set's."""
    objects: Mapping[str, ObjectRecord]
    """By source."""
    proof: Proof | None = None
    """Which of its kernels were executed; None for host code, a shard, or before `kernels SET --prove`."""

    def __post_init__(self) -> None:
        sources = {*self.set_key.sources}
        if not _is_shallow(self.set_key.parts, _MAX_KEY_DEPTH):
            raise ValueError("its key parts are nested too deeply")
        if list(self.set_key.sources) != sorted(sources):
            raise ValueError("its sources are not sorted and unique")
        if not _SET_ID.fullmatch(self.set_id):
            raise ValueError(f"its kernel set id is invalid: {self.set_id[:100]}")
        if self.shard is not None and str(Shard.parse(self.shard)) != self.shard:
            raise ValueError("its shard is not of the form 2/8")
        expected = sources if self.shard is None else {*self.expected} & sources
        if list(self.expected) != sorted(expected):
            raise ValueError("its expected sources are not sorted and unique sources of the set or shard")
        for source, entry in self.objects.items():
            if entry.source != source or source not in expected:
                raise ValueError(f"an object is not of this set: {source[:100]}")
        self._require_packable()

    def _require_packable(self) -> None:
        for duplicates in self.group_by_content():
            if len({entry.size for entry in duplicates}) > 1:
                raise ValueError(f"two sizes for one sha256: {duplicates[0].source}")
            if duplicates[0].size > _MAX_OBJECT_BYTES:
                which = f"{duplicates[0].source} has {duplicates[0].size} bytes"
                raise ValueError(f"{which}, the limit is {_MAX_OBJECT_BYTES}")

    @property
    def is_partial(self) -> bool:
        """Whether objects are missing because the compile ran out of time."""
        return len(self.objects) < len(self.expected)

    @property
    def key(self) -> str:
        """The key of the set: 64 hex digits."""
        return self.set_key.digest

    @property
    def file_name(self) -> str:
        """Such as ``ck-62327233-rocm6.4-gfx942-0123456789abcdef.shard-2-of-8.tar.zst``."""
        return f"{self.set_id}-{self.key[:16]}{shard_suffix(self.shard)}{ARCHIVE_SUFFIX}"

    def group_by_content(self) -> Iterator[tuple[ObjectRecord, ...]]:
        """Yield the objects that share each distinct content, in archive order."""
        entries = sorted(self.objects.values(), key=lambda entry: (entry.sha256, entry.source))
        for _, group in groupby(entries, key=lambda entry: entry.sha256):
            yield tuple(group)

    def to_bytes(self) -> bytes:
        """Serialize to JSON; the same objects give the same bytes."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode() + b"\n"


def make_archive_manifest(
    key: SetKey, set_id: str, shard: str | None, entries: Iterable[ObjectRecord], expected: Iterable[str]
) -> ArchiveManifest:
    """Make the manifest of these objects of a set, or of one shard with the sources `expected`.

    Raises `BuildError` if an archive cannot hold the objects.
    """
    objects = {entry.source: entry for entry in sorted(entries, key=lambda entry: entry.source)}
    sources = tuple(sorted(set(key.sources)))
    names = sources if shard is None else tuple(sorted(set(expected)))
    try:
        return ArchiveManifest(set_id, SetKey(key.parts, sources), shard, names, objects)
    except ValueError as error:
        hint = "remove them from the cache, and compile them again"
        raise BuildError("cannot pack objects", str(error), hint) from None


def parse_archive_manifest(data: bytes, place: str) -> ArchiveManifest:
    """Parse and verify the JSON of a manifest. Raises `InputError`, which names `place`, if it is invalid."""
    try:
        return parse_record(ArchiveManifest, data)
    except ValueError as error:
        hint = "pack it again with this version of wheelfactory"
        raise InputError("damaged kernel manifest", f"{place}: {error}", hint) from None


def _is_shallow(value: object, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(item, levels - 1) for item in items)


# bytes of a tar header; contents are padded to a multiple of it
_BLOCK = 512
_END = bytes(2 * _BLOCK)
# bytes handed to the decompressor at once. zstd's densest block makes 128 KiB of 4 bytes: 64 MiB at most a chunk
_CHUNK = 1 << 11
# log2 of the zstd window in bytes, for writer and reader. Large, because objects of one set resemble each other
_WINDOW_LOG = 27
_LEVEL = 9


class DamagedStreamError(Exception):
    """The archive is damaged; the message follows the name of the archive in an error."""


@contextmanager
def open_writer(file: IO[bytes]) -> Iterator[zstandard.ZstdCompressionWriter]:
    """Open a stream for `write_member`, and write the end marker on exit. The same members give the same bytes."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, enable_ldm=True, write_checksum=True
    )
    with zstandard.ZstdCompressor(compression_params=parameters).stream_writer(file, closefd=False) as stream:
        yield stream
        stream.write(_END)


def write_member(stream: zstandard.ZstdCompressionWriter, name: str, size: int, content: Iterable[bytes]) -> None:
    """Write a file of `size` bytes: no owner, no time, readable by everyone."""
    member = tarfile.TarInfo(name)
    member.size = size
    stream.write(member.tobuf(tarfile.USTAR_FORMAT))
    for piece in content:
        stream.write(piece)
    stream.write(bytes(-size % _BLOCK))


class ArchiveStream:
    """Reads an archive. Every method raises `DamagedStreamError`, or `OSError` if the file cannot be read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._inflater = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).decompressobj()
        self._buffer = memoryview(b"")

    def read_header(self) -> tuple[str, int]:
        """Read the next header: name and size in bytes. Call `read_content` before the next `read_header`."""
        block = self._read_exactly(_BLOCK)
        if not any(block):
            raise DamagedStreamError("it ends before its last member")
        try:
            found = tarfile.TarInfo.frombuf(block, "utf-8", "backslashreplace")
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise DamagedStreamError(f"it contains no valid tar archive ({error})") from None
        name = found.name[:200]
        if found.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise DamagedStreamError(f"{name} is no regular file, but of the type {found.type!r}")
        if found.size < 0:
            raise DamagedStreamError(f"{name} has a negative size")
        return name, found.size

    def read_content(self, size: int) -> Iterator[memoryview]:
        """Yield the next `size` bytes in pieces, and skip the padding after them."""
        yield from self._read_pieces(size)
        if any(self._read_exactly(-size % _BLOCK)):
            raise DamagedStreamError("it has data between its members")

    def read_end(self) -> None:
        """Read the end marker, and require that nothing follows it."""
        if self._read_exactly(len(_END)) != _END:
            raise DamagedStreamError("it has data after its last member")
        while not self._inflater.eof:
            self._decompress_chunk()
        if self._buffer or self._inflater.unused_data or self._file.read(1):
            raise DamagedStreamError("it has data after its end")

    def _read_exactly(self, size: int) -> bytes:
        return b"".join(self._read_pieces(size))

    def _read_pieces(self, size: int) -> Iterator[memoryview]:
        while size:
            if not self._buffer:
                self._decompress_chunk()
            piece = self._buffer[:size]
            self._buffer = self._buffer[len(piece) :]
            size -= len(piece)
            yield piece

    def _decompress_chunk(self) -> None:
        if self._inflater.eof:
            raise DamagedStreamError("it ends before its last member")
        packed = self._file.read(_CHUNK)
        if not packed:
            raise DamagedStreamError("it is truncated")
        try:
            made = self._inflater.decompress(packed)
        except zstandard.ZstdError as error:
            raise DamagedStreamError(f"it is not a valid zstandard stream ({error})") from None
        if self._buffer and made:
            raise DamagedStreamError("it has data after its last member")
        self._buffer = memoryview(made)
