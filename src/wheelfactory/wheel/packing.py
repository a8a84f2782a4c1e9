"""Writes the zip archive of a wheel; members of another archive are copied as they lie there, packed.

zipfile has no way to do that: it unpacks and packs again, which is most of the time that a large wheel costs. Members
that are new are stored as they are, so that the bytes of the archive do not hang on the version of a compressor.
Source of the formats: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", 6.3.10, sections 4.3 to 4.5.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TypeAlias

DateTime: TypeAlias = "tuple[int, int, int, int, int, int]"

FIRST_TIME: DateTime = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip archive can hold."""

_ELSEWHERE, _COUNT_ELSEWHERE = 0xFFFFFFFF, 0xFFFF
"""What a field holds whose number stands in one of 8 bytes elsewhere (ZIP64)."""
_TOO_MANY_BYTES, _TOO_MANY_MEMBERS = _ELSEWHERE, _COUNT_ELSEWHERE
"""The least numbers that do."""

_CHUNK = 1 << 20
_UTF8 = 0x800
_UNIX = 3
_PLAIN, _WIDE = 20, 45
"""The version of the specification that a reader must know, without and with ZIP64."""
_LOCAL_LENGTHS = struct.Struct("<26xHH")
_LOCAL = struct.Struct("<4s5HIIIHH")
_CENTRAL = struct.Struct("<4sBB5HIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_WIDE_END = struct.Struct("<4sQBBHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")


@dataclass(frozen=True)
class Packed:
    """Where the bytes of a member lie in an open archive, and how they are packed."""

    file: IO[bytes]
    start: int
    method: int
    checksum: int
    size: int
    """Packed."""
    unpacked_size: int


@dataclass(frozen=True)
class _Entry:
    """What the directory at the end says of a member."""

    name: bytes
    method: int
    checksum: int
    size: int
    unpacked_size: int
    mode: int
    offset: int


def find_packed(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Packed:
    """The packed bytes of a member of an archive that `archive.open_archive` has looked at."""
    file = archive.fp
    assert file
    file.seek(info.header_offset)
    name, extra = _LOCAL_LENGTHS.unpack(file.read(_LOCAL_LENGTHS.size))
    start = info.header_offset + _LOCAL.size + name + extra
    return Packed(file, start, info.compress_type, info.CRC, info.compress_size, info.file_size)


class ArchiveWriter:
    """Writes an archive to an empty file, from its first byte to its last; all members get one time."""

    def __init__(self, file: IO[bytes], date_time: DateTime) -> None:
        year, month, day, hour, minute, second = max(date_time, FIRST_TIME)
        self._date = (year - FIRST_TIME[0]) << 9 | month << 5 | day
        self._time = hour << 11 | minute << 5 | second // 2
        self._file = file
        self._at = 0
        self._entries: list[_Entry] = []

    def copy(self, name: str, packed: Packed, *, executable: bool) -> None:
        """Add a member of another archive. Raises `zipfile.BadZipFile` if that ends before it does."""
        mode = 0o100755 if executable else 0o100644
        self._begin(name, packed.method, packed.checksum, packed.size, packed.unpacked_size, mode)
        packed.file.seek(packed.start)
        left = packed.size
        while left:
            piece = packed.file.read(min(left, _CHUNK))
            if not piece:
                raise zipfile.BadZipFile(f"{name} is cut short")
            self._write(piece)
            left -= len(piece)

    def add(self, name: str, data: bytes) -> None:
        """Add a member of these bytes."""
        self._begin(name, zipfile.ZIP_STORED, zlib.crc32(data), len(data), len(data), 0o100644)
        self._write(data)

    def finish(self) -> None:
        """Write the directory; nothing can be added then."""
        start = self._at
        for entry in self._entries:
            self._write(self._central(entry))
        end, size, count = self._at, self._at - start, len(self._entries)
        if _is_wide(start) or _is_wide(size) or count >= _TOO_MANY_MEMBERS:
            rest = _WIDE_END.size - 12  # the signature and this field do not count
            fields = (rest, _WIDE, _UNIX, _WIDE, 0, 0, count, count, size, start)
            self._write(_WIDE_END.pack(b"PK\x06\x06", *fields))
            self._write(_LOCATOR.pack(b"PK\x06\x07", 0, end, 1))
        short = count if count < _TOO_MANY_MEMBERS else _COUNT_ELSEWHERE
        self._write(_END.pack(b"PK\x05\x06", 0, 0, short, short, _narrow(size), _narrow(start), 0))

    def _begin(self, name: str, method: int, checksum: int, size: int, unpacked_size: int, mode: int) -> None:
        entry = _Entry(name.encode("utf-8"), method, checksum, size, unpacked_size, mode, self._at)
        self._entries.append(entry)
        extra, version, sizes = b"", _PLAIN, (size, unpacked_size)
        if _is_wide(max(sizes)):  # then both stand elsewhere, in the header before a member
            extra, version, sizes = _extra(unpacked_size, size), _WIDE, (_ELSEWHERE, _ELSEWHERE)
        fields = (*self._common(entry, version), checksum, *sizes, len(entry.name), len(extra))
        self._write(_LOCAL.pack(b"PK\x03\x04", *fields) + entry.name + extra)

    def _common(self, entry: _Entry, version: int) -> tuple[int, ...]:
        flags = 0 if entry.name.isascii() else _UTF8
        return version, flags, entry.method, self._time, self._date

    def _central(self, entry: _Entry) -> bytes:
        numbers = (entry.unpacked_size, entry.size, entry.offset)
        extra = _extra(*filter(_is_wide, numbers))
        unpacked_size, size, offset = map(_narrow, numbers)
        version = _WIDE if extra else _PLAIN
        fields = (entry.checksum, size, unpacked_size, len(entry.name), len(extra), 0, 0, 0, entry.mode << 16, offset)
        head = _CENTRAL.pack(b"PK\x01\x02", version, _UNIX, *self._common(entry, version), *fields)
        return head + entry.name + extra

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._at += len(data)


def _is_wide(number: int) -> bool:
    return number >= _TOO_MANY_BYTES


def _narrow(number: int) -> int:
    return _ELSEWHERE if _is_wide(number) else number


def _extra(*numbers: int) -> bytes:
    """The ZIP64 field with the numbers that are too large for their own; nothing if there are none."""
    return struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers) if numbers else b""
