"""Read offload bundles: the device code in a ``.hip_fatbin`` section, one bundle for each linked object.

A plain bundle is ``__CLANG_OFFLOAD_BUNDLE__``, a count, then offset, size and id of each entry. A compressed bundle is
``CCOB``, version, method, sizes, a hash, then a plain bundle compressed by zlib or zstd. All numbers are little-endian.
Source: LLVM, "Clang Offload Bundler"; header lengths as written by LLVM 21 (version 2) and ROCm 7 (version 3).
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import zstandard

from wheelfactory.wheel.elf.code_object import Target, read_kernel_names
from wheelfactory.wheel.elf.image import DamagedElfError

PLAIN_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
PLAIN_FORM = "plain"

NOT_ZERO = re.compile(rb"[^\0]")
_NUMBER, _ENTRY, _KIND = struct.Struct("<Q"), struct.Struct("<QQQ"), struct.Struct("<HH")
# fields after version and method, by version: the total size (from 2 on), the unpacked size and a hash
_SIZES = {1: struct.Struct("<IQ"), 2: struct.Struct("<IIQ"), 3: struct.Struct("<QQQ")}
_METHODS = {0: "zlib", 1: "zstd"}

# bundles of a section; a wheel of all CK kernels has 2,800
_MAX_BUNDLES = 1 << 16
# what an entry costs of the unpacked bytes: the memory for what is known of it; real bundles have 25 entries at most
_ENTRY_COST = 1 << 8
_MAX_ID = 1 << 8
# bytes of a code object, which is in memory while it is read
_MAX_CODE_OBJECT = 1 << 28
# unpacked size over section size; similar code for 25 GPUs has a ratio of 50
_MAX_RATIO = 200
# bytes that even the smallest section may unpack to
_MIN_LIMIT = 1 << 26
# bytes that a section of any size may unpack to; unpacking them takes one or two minutes
_MAX_UNPACKED = 1 << 36
# bytes given to a decompressor at once; zstd's densest block makes 128 KiB of 4 bytes, so the output is <= 16 MiB
_PIECE = 1 << 9
# the largest accepted zstd window, in bytes: the window of LLVM's highest level
_WINDOW = 1 << 27


@dataclass(frozen=True, slots=True)
class CodeObject:
    """An entry of a bundle."""

    id: str
    """Such as ``hipv4-amdgcn-amd-amdhsa--gfx942``."""
    target: Target | None
    """The target in the id; None for the host."""
    size: int
    """Bytes."""
    sha256: str = ""
    """Of its bytes; empty in an offload package."""
    kernels: tuple[str, ...] = ()
    """The names of its kernels, if it is whole."""
    fault: str = ""
    """Why it is not a whole code object for the target in its id; empty if it is, or if it has no bytes."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The code objects of one linked object file."""

    offset: int
    """Offset in its section, in bytes."""
    form: str
    """`PLAIN_FORM`, or for example ``CCOB v2 zstd``."""
    size: int
    """Bytes in the section."""
    unpacked_size: int
    entries: tuple[CodeObject, ...]

    @property
    def targets(self) -> frozenset[str]:
        """The target ids with device code; empty for a bundle with host entries only."""
        return frozenset(str(entry.target) for entry in self.entries if entry.target and entry.size)


@dataclass(frozen=True)
class DeviceCode:
    """The code objects for one target in several bundles."""

    objects: int
    size: int
    """Bytes, unpacked."""


def sum_device_code(bundles: Iterable[Bundle]) -> dict[str, DeviceCode]:
    """Sum up the device code of each target id, sorted by id."""
    found: dict[str, list[int]] = {}
    for bundle in bundles:
        for entry in bundle.entries:
            if entry.target and entry.size:
                found.setdefault(str(entry.target), []).append(entry.size)
    return {target: DeviceCode(len(sizes), sum(sizes)) for target, sizes in sorted(found.items())}


def read_bundles(section: memoryview) -> tuple[Bundle, ...]:
    """Read the bundles of a section, and decompress each to its end to verify it.

    Raises `DamagedElfError` for the first damaged bundle.
    """
    # one budget for all: many small bombs are as bad as one large bomb
    budget = _Budget(min(_MAX_RATIO * len(section) + _MIN_LIMIT, _MAX_UNPACKED))
    bundles: list[Bundle] = []
    at = 0
    # a search, not a loop over bytes: gaps between bundles may be long
    while match := NOT_ZERO.search(section, at):  # linkers pad with zeros
        if len(bundles) == _MAX_BUNDLES:
            raise DamagedElfError(f"more than {_MAX_BUNDLES} bundles")
        bundles.append(_read_bundle(section[match.start() :], match.start(), budget))
        at = match.start() + bundles[-1].size
    return tuple(bundles)


def _read_bundle(data: memoryview, at: int, budget: _Budget) -> Bundle:
    """Read the bundle at the start of `data`. Raises `DamagedElfError` for unknown content."""
    try:
        if data[: len(PLAIN_MAGIC)] == PLAIN_MAGIC:
            stream = _Stream([data])
            entries = _read_entries(stream, budget)
            return Bundle(at, PLAIN_FORM, stream.at, stream.at, entries)
        if data[: len(COMPRESSED_MAGIC)] == COMPRESSED_MAGIC:
            return _read_compressed(data, at, budget)
    except (struct.error, zlib.error, zstandard.ZstdError, EOFError) as error:
        raise DamagedElfError(f"bundle at {at}: {error}") from None
    # not skipped: it could be device code
    raise DamagedElfError(f"unknown content at {at}, where a bundle was expected")


class _Budget:
    """The unpacked bytes that the bundles of a section may still have."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise DamagedElfError("the unpacked bundles are too large for their packed size")


class _Stream:
    """Bytes that come in pieces and are read once, sequentially."""

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self._pieces = iter(pieces)
        self._ready = memoryview(b"")
        self.at = 0

    def _take(self, size: int) -> Iterator[memoryview]:
        while size:
            part = self._ready[:size]
            self._ready = self._ready[len(part) :]
            self.at += len(part)
            size -= len(part)
            yield part
            if size and not self._refill():
                raise EOFError(f"{size} bytes at {self.at} are outside the data")

    def _refill(self) -> bool:
        """Load the next piece; return False after the last."""
        piece = next(self._pieces, None)
        self._ready = memoryview(piece or b"")
        return piece is not None

    def read(self, size: int) -> bytes:
        return b"".join(self._take(size))

    def skip_padding(self, size: int) -> None:
        """Skip zeros between entries, which compilers write. Raises `EOFError` for any other byte."""
        at = self.at
        if any(NOT_ZERO.search(part) for part in self._take(size)):
            raise EOFError(f"{size} bytes at {at} belong to no entry and are not zero")

    def finish(self) -> None:
        """Read to the end; the rest must be padding."""
        while self._ready or self._refill():
            self.skip_padding(len(self._ready))


class _Unpacked(_Stream):
    """The unpacked bytes of a compressed bundle."""

    def __init__(self, packed: memoryview, method: str, budget: _Budget) -> None:
        super().__init__(self._unpack(packed, budget))
        self.consumed = 0
        """Compressed bytes that were used; final when everything is read."""
        zstd = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._inflater = zlib.decompressobj() if method == "zlib" else zstd.decompressobj()

    def _unpack(self, packed: memoryview, budget: _Budget) -> Iterator[bytes]:
        while not self._inflater.eof:
            piece = packed[self.consumed : self.consumed + _PIECE]
            if not piece:
                raise EOFError("the compressed data is truncated")
            unpacked = self._inflater.decompress(piece)
            self.consumed += len(piece) - len(self._inflater.unused_data)
            budget.spend(len(unpacked))
            yield unpacked


def _read_compressed(data: memoryview, at: int, budget: _Budget) -> Bundle:
    version, number = _KIND.unpack_from(data, len(COMPRESSED_MAGIC))
    if version not in _SIZES or number not in _METHODS:
        raise EOFError(f"unsupported compression: version {version}, method {number}")
    method, start = _METHODS[number], len(COMPRESSED_MAGIC) + _KIND.size
    *total, unpacked, _hash = _SIZES[version].unpack_from(data, start)
    start += _SIZES[version].size
    end = total[0] if total else len(data)
    if not start <= end <= len(data):
        raise EOFError(f"its {end} bytes are outside the section")
    stream = _Unpacked(data[start:end], method, budget)
    entries = _read_entries(stream, budget)
    stream.finish()
    size = start + stream.consumed
    if (stream.at, size) != (unpacked, end if total else size):
        stated = f"{unpacked} bytes of {end}" if total else f"{unpacked} bytes"
        raise EOFError(f"it unpacks to {stream.at} bytes of {size}, but its header says {stated}")
    return Bundle(at, f"CCOB v{version} {method}", size, unpacked, entries)


def _read_entries(stream: _Stream, budget: _Budget) -> tuple[CodeObject, ...]:
    """Read the entries of a plain bundle; the stream is then after the last one."""
    if stream.read(len(PLAIN_MAGIC)) != PLAIN_MAGIC:
        raise EOFError("the unpacked data is not a bundle")
    (count,) = _NUMBER.unpack(stream.read(_NUMBER.size))
    budget.spend(count * _ENTRY_COST)
    places = [_read_place(stream) for _ in range(count)]
    found: dict[int, CodeObject] = {}
    for offset, size, name in sorted(places):  # the stream is sequential, but ids may be in any order
        if size:
            if offset < stream.at:
                raise EOFError(f"the entry at {offset} overlaps another")
            stream.skip_padding(offset - stream.at)
            found[offset] = _read_code_object(name, stream, size)
    return tuple(found[at] if size else CodeObject(name, Target.from_id(name), 0) for at, size, name in places)


def _read_code_object(name: str, stream: _Stream, size: int) -> CodeObject:
    target = Target.from_id(name)
    if size > _MAX_CODE_OBJECT:
        raise EOFError(f"a code object of {size} bytes")
    data = stream.read(size)
    kernels: tuple[str, ...] = ()
    fault = ""
    try:
        kernels = read_kernel_names(data, str(target))
    except DamagedElfError as error:
        fault = str(error)
    return CodeObject(name, target, size, hashlib.sha256(data).hexdigest(), kernels, fault)


def _read_place(stream: _Stream) -> tuple[int, int, str]:
    offset, size, length = _ENTRY.unpack(stream.read(_ENTRY.size))
    if length > _MAX_ID:
        raise EOFError(f"an id of {length} bytes")
    return offset, size, stream.read(length).decode("utf-8", "backslashreplace")
