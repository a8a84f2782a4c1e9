"""Offload bundles: the device code in a ``.hip_fatbin`` section, plain or compressed, one bundle an object.

Plain is ``__CLANG_OFFLOAD_BUNDLE__``, a count, then offset, size and id of each entry. Compressed is ``CCOB``, version,
method, sizes, a hash, then a plain bundle packed by zlib or zstd. All numbers are little-endian. Source: LLVM, "Clang
Offload Bundler"; the lengths of the three headers as LLVM 21 (2) and ROCm 7's compiler (3) write them.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import zstandard

from wheelfactory.wheel.elf.image import EM_AMDGPU, MAGIC, DamagedElfError
from wheelfactory.wheel.elf.targets import Target, arch_from_flags

PLAIN_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"

_NOT_ZERO = re.compile(rb"[^\0]")
_NUMBER, _ENTRY, _KIND = struct.Struct("<Q"), struct.Struct("<QQQ"), struct.Struct("<HH")
_SIZES = {1: struct.Struct("<IQ"), 2: struct.Struct("<IIQ"), 3: struct.Struct("<QQQ")}
"""What follows version and method: from version 2 on the total size, then the unpacked size and a hash."""
_METHODS = {0: "zlib", 1: "zstd"}

_MOST_BUNDLES = 1 << 16
"""Bundles of a section; a wheel of all CK kernels has 2,800."""
_MOST_ENTRIES = 1 << 18
"""Entries of a section; 25 for each bundle is the most that was seen."""
_LONGEST_ID = 1 << 8
_MOST_TIMES = 200
"""How many times its size a section may unpack to; code for 25 GPUs that differs little unpacks to 50 times."""
_ALWAYS = 1 << 26
"""Bytes that a section may unpack to whatever its size."""
_NEVER = 1 << 36
"""Bytes that no section may unpack to; to unpack them takes a minute or two."""
_PIECE = 1 << 9
"""Bytes handed to a decompressor at once; zstd's densest block makes 128 KiB of 4, so this makes 16 MiB at most."""
_WINDOW = 1 << 27
"""The largest zstd window that is accepted, in bytes: what LLVM's highest level uses."""
_ELF_HEADER = 64


@dataclass(frozen=True, slots=True)
class CodeObject:
    """An entry of a bundle."""

    id: str
    """Such as ``hipv4-amdgcn-amd-amdhsa--gfx942``."""
    target: Target | None
    """What the id names; None for the host."""
    size: int
    """Bytes."""
    arch: str | None
    """What the code object itself says it is for; None if it is empty, or no ELF file of an AMD GPU."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The code objects of one linked object file."""

    offset: int
    """Where it begins in its section, in bytes."""
    form: str
    """``plain``, or such as ``CCOB v2 zstd``."""
    size: int
    """Bytes in the section."""
    unpacked_size: int
    entries: tuple[CodeObject, ...]

    @property
    def targets(self) -> frozenset[str]:
        """What it holds device code for, as target ids; empty if only for the host."""
        return frozenset(str(entry.target) for entry in self.entries if entry.target and entry.size)


@dataclass(frozen=True)
class DeviceCode:
    """The code objects for one target in several bundles."""

    objects: int
    size: int
    """Bytes, unpacked."""


def sum_device_code(bundles: Iterable[Bundle]) -> dict[str, DeviceCode]:
    """What there is for each target id, sorted by it."""
    found: dict[str, list[int]] = {}
    for bundle in bundles:
        for entry in bundle.entries:
            if entry.target and entry.size:
                found.setdefault(str(entry.target), []).append(entry.size)
    return {target: DeviceCode(len(sizes), sum(sizes)) for target, sizes in sorted(found.items())}


def read_bundles(section: memoryview) -> tuple[Bundle, ...]:
    """The bundles of a section. Raises `DamagedElfError` for the first that does not hold together.

    Packed bundles are unpacked in pieces and to the end, since nothing else shows that they can be.
    """
    budget = _Budget(min(_MOST_TIMES * len(section) + _ALWAYS, _NEVER))
    bundles: list[Bundle] = []
    at = 0
    while match := _NOT_ZERO.search(section, at):  # a linker fills up with zeros
        if len(bundles) == _MOST_BUNDLES:
            raise DamagedElfError(f"more than {_MOST_BUNDLES} bundles")
        bundles.append(_bundle(section[match.start() :], match.start(), budget))
        at = match.start() + bundles[-1].size
    return tuple(bundles)


def _bundle(data: memoryview, at: int, budget: _Budget) -> Bundle:
    """The bundle that begins where `data` does; what is none would be device code that is not understood."""
    try:
        if data[: len(PLAIN_MAGIC)] == PLAIN_MAGIC:
            stream = _Stored(data)
            entries = _entries(stream, budget)
            return Bundle(at, "plain", stream.at, stream.at, entries)
        if data[: len(COMPRESSED_MAGIC)] == COMPRESSED_MAGIC:
            return _packed(data, at, budget)
    except (struct.error, zlib.error, zstandard.ZstdError, EOFError) as error:
        raise DamagedElfError(f"bundle at {at}: {error}") from None
    raise DamagedElfError(f"unknown content at {at}, where a bundle was expected")


class _Budget:
    """What the bundles of a section may unpack to, in bytes, and how many entries they may have, altogether."""

    def __init__(self, left: int) -> None:
        self._left, self._entries = left, _MOST_ENTRIES

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise DamagedElfError("the bundles unpack to more than their size allows")

    def admit(self, entries: int) -> None:
        self._entries -= entries
        if self._entries < 0:
            raise DamagedElfError(f"more than {_MOST_ENTRIES} entries in the bundles")


class _Stream:
    """Bytes that come in pieces and are read once, from the first to the last."""

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
                raise EOFError(f"{size} bytes at {self.at} lie outside the unpacked data")

    def _refill(self) -> bool:
        """Go on to the next piece; False behind the last."""
        piece = next(self._pieces, None)
        self._ready = memoryview(piece or b"")
        return piece is not None

    def read(self, size: int) -> bytes:
        return b"".join(self._take(size))

    def skip(self, size: int) -> None:
        for _ in self._take(size):
            pass

    def skip_padding(self, size: int) -> None:
        """Raises `EOFError` for bytes that belong to no entry; compilers fill up with zeros."""
        at = self.at
        if any(part.tobytes().strip(b"\0") for part in self._take(size)):
            raise EOFError(f"{size} bytes at {at} that are no entry and not zero")

    def finish(self) -> None:
        """Read to the end, which only padding may fill."""
        while self._ready or self._refill():
            self.skip_padding(len(self._ready))


class _Stored(_Stream):
    """A plain bundle; what follows it in the section is not told apart, and not read."""

    def __init__(self, data: memoryview) -> None:
        super().__init__([data])
        self._size = len(data)

    def _take(self, size: int) -> Iterator[memoryview]:
        if self.at + size > self._size:
            raise EOFError(f"{size} bytes at {self.at} lie outside")
        return super()._take(size)


class _Unpacked(_Stream):
    """The unpacked bytes of a packed bundle."""

    def __init__(self, packed: memoryview, method: str, budget: _Budget) -> None:
        super().__init__(self._unpack(packed, budget))
        self.consumed = 0
        """Bytes of the packed form that belong to it; known when all is read."""
        self._inflater = (
            zlib.decompressobj()
            if method == "zlib"
            else zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        )

    def _unpack(self, packed: memoryview, budget: _Budget) -> Iterator[bytes]:
        """Raises `EOFError` if the packed data was cut short."""
        while not self._inflater.eof:
            piece = packed[self.consumed : self.consumed + _PIECE]
            if not piece:
                raise EOFError("the packed data was cut short")
            unpacked = self._inflater.decompress(piece)
            self.consumed += len(piece) - len(self._inflater.unused_data)
            budget.spend(len(unpacked))
            yield unpacked


def _packed(data: memoryview, at: int, budget: _Budget) -> Bundle:
    head = _Stored(data)
    head.skip(len(COMPRESSED_MAGIC))
    version, number = _KIND.unpack(head.read(_KIND.size))
    if version not in _SIZES or number not in _METHODS:
        raise EOFError(f"packed in a way that is not known: version {version}, method {number}")
    sizes = _SIZES[version]
    *total, unpacked, _hash = sizes.unpack(head.read(sizes.size))
    end = total[0] if total else len(data)
    if not head.at <= end <= len(data):
        raise EOFError(f"{end} bytes lie outside the section")
    stream = _Unpacked(data[head.at : end], _METHODS[number], budget)
    entries = _entries(stream, budget)
    stream.finish()
    if stream.at != unpacked:
        raise EOFError(f"unpacks to {stream.at} bytes, its header says {unpacked}")
    size = head.at + stream.consumed
    if total and size != end:
        raise EOFError(f"is packed into {size} bytes, its header says {end}")
    return Bundle(at, f"CCOB v{version} {_METHODS[number]}", size, unpacked, entries)


def _entries(stream: _Stream, budget: _Budget) -> tuple[CodeObject, ...]:
    """The entries of a plain bundle; the stream is left behind the last of them."""
    if stream.read(len(PLAIN_MAGIC)) != PLAIN_MAGIC:
        raise EOFError("the unpacked data is no bundle")
    (count,) = _NUMBER.unpack(stream.read(_NUMBER.size))
    budget.admit(count)
    places = [_place(stream) for _ in range(count)]
    heads: dict[int, bytes] = {}
    for offset, size, _ in sorted(places):
        if size:
            if offset < stream.at:
                raise EOFError(f"an entry at {offset} lies over another")
            stream.skip_padding(offset - stream.at)
            heads[offset] = stream.read(min(size, _ELF_HEADER))
            stream.skip(size - len(heads[offset]))
    return tuple(
        CodeObject(name, Target.from_id(name), size, _arch(heads[at]) if size else None) for at, size, name in places
    )


def _place(stream: _Stream) -> tuple[int, int, str]:
    offset, size, length = _ENTRY.unpack(stream.read(_ENTRY.size))
    if length > _LONGEST_ID:
        raise EOFError(f"an id of {length} bytes")
    return offset, size, stream.read(length).decode("utf-8", "backslashreplace")


def _arch(head: bytes) -> str | None:
    if len(head) < _ELF_HEADER or not head.startswith(MAGIC):
        return None
    (machine,), (flags,) = struct.unpack_from("<H", head, 18), struct.unpack_from("<I", head, 48)
    return arch_from_flags(flags) if machine == EM_AMDGPU else None
