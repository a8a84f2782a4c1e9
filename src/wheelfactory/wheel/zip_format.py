"""The structures of a zip archive, read and written: the header before a member, the directory, and its end records.

Members of another archive are copied as they lie there, packed. zipfile has no way to do that: it unpacks and packs
again, which is most of the time that a large wheel costs. Members that are new are stored as they are, so that the
bytes of the archive do not hang on the version of a compressor.

Source: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", 6.3.10, sections 4.3 to 4.5.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TypeAlias

DateTime: TypeAlias = "tuple[int, int, int, int, int, int]"

EARLIEST_TIME: DateTime = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip archive can hold."""

_CHUNK = 1 << 20

ENCRYPTED, HAS_DESCRIPTOR, UTF8 = 0x1, 0x8, 0x800
"""Flags of a member; after one whose sizes follow stands a descriptor, because its writer could not seek."""
COMPRESSION_LEVEL_FLAGS = 0x6
"""Flags that say how hard the writer tried; they mean nothing to a reader."""

ZIP64_MIN_BYTES, ZIP64_MIN_MEMBERS = 0xFFFFFFFF, 0xFFFF
"""The least numbers that are written elsewhere, in 8 bytes (ZIP64)."""
_ELSEWHERE, _COUNT_ELSEWHERE = 0xFFFFFFFF, 0xFFFF
"""What their own fields hold then."""

_LOCAL, _LOCAL_MAGIC = struct.Struct("<4s5HIIIHH"), b"PK\x03\x04"
_CENTRAL, _CENTRAL_MAGIC = struct.Struct("<4s6HIIIHHHHHII"), b"PK\x01\x02"
_END, _END_MAGIC = struct.Struct("<4s4HIIH"), b"PK\x05\x06"
_WIDE_END, _WIDE_END_MAGIC = struct.Struct("<4sQHHIIQQQQ"), b"PK\x06\x06"
_WIDE_END_REST = _WIDE_END.size - 12
"""The size that it says of itself: its magic and that field do not count."""
_LOCATOR, _LOCATOR_MAGIC = struct.Struct("<4sIQI"), b"PK\x06\x07"
_DESCRIPTORS, _DESCRIPTOR_MAGIC = (struct.Struct("<4sIII"), struct.Struct("<4sIQQ")), b"PK\x07\x08"
_EXTRA = struct.Struct("<HH")
_ZIP64, _OTHER_NAME = 0x0001, 0x7075
_PLAIN, _WIDE = 20, 45
"""The version of the specification that a reader must know, without and with ZIP64."""
_UNIX = 3 << 8

_LONGEST_DIRECTORY = 1 << 24
"""Bytes of a directory: `zipfile` takes some 15 times as much memory. That of torch, 15,000 members, has 2 MB."""


@dataclass(frozen=True)
class EndRecord:
    """What the end record says of the directory: its members, where it begins, and its bytes."""

    members: int
    offset: int
    size: int


def read_end_record(file: IO[bytes]) -> EndRecord:
    """The end record of a zip file. Raises `BadZipFile` unless it stands last, and if the directory is absurdly long.

    Where a comment may follow, some tools take the first that looks like an end record, and others the last.
    """
    at = file.seek(0, os.SEEK_END) - _END.size
    magic, disk, first_disk, here, members, size, offset, comment = _END.unpack(_read(file, at, _END.size))
    if magic != _END_MAGIC or comment:
        raise zipfile.BadZipFile("it does not end with an end record")
    end = EndRecord(members, offset, size)
    if disk or first_disk or here != members:
        raise zipfile.BadZipFile("one of several disks")
    if at >= _LOCATOR.size and (locator := _read(file, at - _LOCATOR.size, _LOCATOR.size)).startswith(_LOCATOR_MAGIC):
        at -= _LOCATOR.size + _WIDE_END.size
        end = _wider(end, at, locator, _read(file, at, _WIDE_END.size))
    if end.size > _LONGEST_DIRECTORY:
        raise zipfile.BadZipFile(f"a directory of {end.size} bytes, more than {_LONGEST_DIRECTORY}")
    return end


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    if at >= 0:
        file.seek(at)
        if len(data := file.read(size)) == size:
            return data
    raise zipfile.BadZipFile("it is cut short")


def _wider(end: EndRecord, at: int, locator: bytes, record: bytes) -> EndRecord:
    """The end record of an archive that is too large for the plain one, which must agree as far as it goes."""
    _, disk, place, disks = _LOCATOR.unpack(locator)
    magic, size, _, _, *of_disks, here, members, length, offset = _WIDE_END.unpack(record)
    wide = EndRecord(members, offset, length)
    if magic != _WIDE_END_MAGIC or size != _WIDE_END_REST or place != at:
        raise zipfile.BadZipFile("the larger end record is not where its locator says")
    if disk or any(of_disks) or disks != 1 or here != members:
        raise zipfile.BadZipFile("one of several disks")
    counts = end.members in (members, _COUNT_ELSEWHERE)
    if not (counts and end.offset in (offset, _ELSEWHERE) and end.size in (length, _ELSEWHERE)):
        raise zipfile.BadZipFile("two end records that differ")
    return wide


def pack_end_record(end: EndRecord) -> bytes:
    """What stands behind a directory, and ends an archive."""
    packed, members = b"", end.members
    if _is_wide(end.offset) or _is_wide(end.size) or members >= ZIP64_MIN_MEMBERS:
        fields = (_WIDE_END_REST, _UNIX | _WIDE, _WIDE, 0, 0, members, members, end.size, end.offset)
        packed = _WIDE_END.pack(_WIDE_END_MAGIC, *fields)
        packed += _LOCATOR.pack(_LOCATOR_MAGIC, 0, end.offset + end.size, 1)
    short = members if members < ZIP64_MIN_MEMBERS else _COUNT_ELSEWHERE
    return packed + _END.pack(_END_MAGIC, 0, 0, short, short, _narrow(end.size), _narrow(end.offset), 0)


@dataclass(frozen=True)
class MemberHeader:
    """What stands before a member, and again in the directory."""

    name: bytes
    flags: int
    method: int
    time: tuple[int, int]
    """Of the day, and the day, as MS-DOS counts them."""
    sizes: tuple[int, int, int]
    """CRC, packed and unpacked bytes."""


def read_header(file: IO[bytes], at: int) -> tuple[MemberHeader, int] | None:
    """The header before a member, and where the packed bytes begin; None if there is none, or it is damaged."""
    file.seek(at)
    data = file.read(_LOCAL.size)
    if len(data) < _LOCAL.size or not data.startswith(_LOCAL_MAGIC):
        return None
    _, _, flags, method, clock, day, checksum, size, unpacked, length, more = _LOCAL.unpack(data)
    name, extra = file.read(length), read_extra(file.read(more))
    if extra is None:
        return None
    if _ELSEWHERE in (size, unpacked):
        if len(extra.get(_ZIP64, b"")) != 16:
            return None
        wide = struct.unpack("<QQ", extra[_ZIP64])
        unpacked, size = (new if old == _ELSEWHERE else old for old, new in zip((unpacked, size), wide, strict=True))
    header = MemberHeader(name, flags, method, (clock, day), (checksum, size, unpacked))
    return header, at + _LOCAL.size + length + more


def pack_header(header: MemberHeader) -> bytes:
    """What stands before a member."""
    checksum, size, unpacked_size = header.sizes
    extra, version = b"", _PLAIN
    if _is_wide(max(size, unpacked_size)):  # then both stand elsewhere
        extra, version = _pack_wide(unpacked_size, size), _WIDE
        size = unpacked_size = _ELSEWHERE
    fields = (header.flags, header.method, *header.time, checksum, size, unpacked_size, len(header.name), len(extra))
    return _LOCAL.pack(_LOCAL_MAGIC, version, *fields) + header.name + extra


def pack_directory_entry(header: MemberHeader, mode: int, offset: int) -> bytes:
    """What stands in the directory of a member whose header begins at `offset`; `mode` is that of its file."""
    checksum, size, unpacked_size = header.sizes
    numbers = (unpacked_size, size, offset)
    extra = _pack_wide(*filter(_is_wide, numbers))
    unpacked_size, size, offset = map(_narrow, numbers)
    version = _WIDE if extra else _PLAIN
    fields = (_UNIX | version, version, header.flags, header.method, *header.time, checksum, size, unpacked_size)
    lengths = (len(header.name), len(extra), 0)
    return _CENTRAL.pack(_CENTRAL_MAGIC, *fields, *lengths, 0, 0, mode << 16, offset) + header.name + extra


def _is_wide(number: int) -> bool:
    return number >= ZIP64_MIN_BYTES


def _narrow(number: int) -> int:
    return _ELSEWHERE if _is_wide(number) else number


def _pack_wide(*numbers: int) -> bytes:
    """The ZIP64 field with the numbers that are too large for their own; nothing if there are none."""
    return struct.pack(f"<HH{len(numbers)}Q", _ZIP64, 8 * len(numbers), *numbers) if numbers else b""


def read_extra(data: bytes) -> dict[int, bytes] | None:
    """The extra fields of a member by their numbers; None if they are damaged, repeat one, or give a second name."""
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if at + _EXTRA.size > len(data):
            return None
        number, size = _EXTRA.unpack_from(data, at)
        at += _EXTRA.size + size
        if at > len(data) or number in fields or number == _OTHER_NAME:
            return None
        fields[number] = data[at - size : at]
    return fields


def find_descriptor_sizes(file: IO[bytes], at: int, sizes: tuple[int, int, int]) -> set[int]:
    """The bytes of what may stand at an offset and say these sizes: CRC, packed and unpacked bytes."""
    file.seek(at)
    data = file.read(_DESCRIPTORS[-1].size)
    forms = _DESCRIPTORS[max(sizes) > _ELSEWHERE :]
    return {form.size for form in forms if data[: form.size] == form.pack(_DESCRIPTOR_MAGIC, *sizes)}


class ArchiveWriter:
    """Writes an archive to an empty file, from its first byte to its last; all members get one time."""

    def __init__(self, file: IO[bytes], date_time: DateTime) -> None:
        year, month, day, hour, minute, second = max(date_time, EARLIEST_TIME)
        self._time = hour << 11 | minute << 5 | second // 2, (year - EARLIEST_TIME[0]) << 9 | month << 5 | day
        self._file = file
        self._at = 0
        self._directory: list[bytes] = []

    def copy(self, name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, executable: bool) -> None:
        """Add a member of an archive that `open_archive` has looked at, under a name.

        Raises `zipfile.BadZipFile` if the archive ends before the member does.
        """
        source, mode = archive.fp, 0o100755 if executable else 0o100644
        found = read_header(source, info.header_offset) if source else None
        assert source and found
        self._begin(name, info.compress_type, (info.CRC, info.compress_size, info.file_size), mode)
        source.seek(found[1])
        left = info.compress_size
        while left:
            piece = source.read(min(left, _CHUNK))
            if not piece:
                raise zipfile.BadZipFile(f"{name} is cut short")
            self._write(piece)
            left -= len(piece)

    def add(self, name: str, data: bytes) -> None:
        """Add a member of these bytes."""
        self._begin(name, zipfile.ZIP_STORED, (zlib.crc32(data), len(data), len(data)), 0o100644)
        self._write(data)

    def finish(self) -> None:
        """Write the directory; nothing can be added then."""
        start = self._at
        for entry in self._directory:
            self._write(entry)
        self._write(pack_end_record(EndRecord(len(self._directory), start, self._at - start)))

    def _begin(self, name: str, method: int, sizes: tuple[int, int, int], mode: int) -> None:
        flags = 0 if name.isascii() else UTF8
        header = MemberHeader(name.encode("utf-8"), flags, method, self._time, sizes)
        self._directory.append(pack_directory_entry(header, mode, self._at))
        self._write(pack_header(header))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._at += len(data)
