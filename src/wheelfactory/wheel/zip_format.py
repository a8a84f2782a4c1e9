"""Read and write the structures of a zip archive: member headers, the directory, and its end records.

The module exists because `zipfile` cannot copy a compressed member: it decompresses and compresses again, which is most
of the time to write a large wheel. New members are stored uncompressed, so the bytes do not depend on a zlib version.

Source: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification", 6.3.10, sections 4.3 to 4.5.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TypeAlias

from wheelfactory.core.errors import InputError

DateTime: TypeAlias = "tuple[int, int, int, int, int, int]"

EARLIEST_TIME: DateTime = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip archive can hold."""


ENCRYPTED, HAS_DESCRIPTOR, UTF8 = 0x1, 0x8, 0x800
"""Flags of a member. A descriptor with CRC and sizes follows a member whose writer could not seek."""
COMPRESSION_LEVEL_FLAGS = 0x6
"""Flags that record the compression level; readers ignore them."""

_IN_ZIP64, _COUNT_IN_ZIP64 = 0xFFFFFFFF, 0xFFFF
"""The value of the short field if the 8-byte field of ZIP64 holds the number.

ZIP64 is read, because torch's wheels have it, and not written: GitHub takes no file of 2 GiB, and a library that large
does not link.
"""

_LOCAL, _LOCAL_MAGIC = struct.Struct("<4s5HIIIHH"), b"PK\x03\x04"
_CENTRAL, _CENTRAL_MAGIC = struct.Struct("<4s6HIIIHHHHHII"), b"PK\x01\x02"
_END, _END_MAGIC = struct.Struct("<4s4HIIH"), b"PK\x05\x06"
_ZIP64_END, _ZIP64_END_MAGIC = struct.Struct("<4sQHHIIQQQQ"), b"PK\x06\x06"
# the value of its own size field, which excludes the magic and the field itself
_ZIP64_END_REST = _ZIP64_END.size - 12
_LOCATOR, _LOCATOR_MAGIC = struct.Struct("<4sIQI"), b"PK\x06\x07"
_DESCRIPTORS, _DESCRIPTOR_MAGIC = (struct.Struct("<4sIII"), struct.Struct("<4sIQQ")), b"PK\x07\x08"
_EXTRA = struct.Struct("<HH")
_ZIP64, _OTHER_NAME = 0x0001, 0x7075
_VERSION = 20
"""The specification version that a reader must support."""
_UNIX = 3 << 8

# bytes of a directory; `zipfile` needs about 15 times as much memory. torch's directory, 15,000 members, has 2 MB
_MAX_DIRECTORY = 1 << 24


@dataclass(frozen=True)
class EndRecord:
    """Number of members, offset and size in bytes of the directory, from the end record."""

    members: int
    offset: int
    size: int


def read_end_record(file: IO[bytes]) -> EndRecord:
    """Read the end record of a zip file.

    Raises `BadZipFile` unless it is the last thing in the file, or if the directory is longer than `_MAX_DIRECTORY`.
    """
    at = file.seek(0, os.SEEK_END) - _END.size
    magic, disk, first_disk, here, members, size, offset, comment = _END.unpack(_read(file, at, _END.size))
    # with a comment, some tools use the first end record that they find, and others the last
    if magic != _END_MAGIC or comment:
        raise zipfile.BadZipFile("no end record at the end of the file")
    end = EndRecord(members, offset, size)
    if disk or first_disk or here != members:
        raise zipfile.BadZipFile("split archives are not supported")
    if at >= _LOCATOR.size and (locator := _read(file, at - _LOCATOR.size, _LOCATOR.size)).startswith(_LOCATOR_MAGIC):
        at -= _LOCATOR.size + _ZIP64_END.size
        end = _read_zip64_end(end, at, locator, _read(file, at, _ZIP64_END.size))
    if end.size > _MAX_DIRECTORY:
        raise zipfile.BadZipFile(f"a directory of {end.size} bytes, more than {_MAX_DIRECTORY}")
    return end


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    if at >= 0:
        file.seek(at)
        if len(data := file.read(size)) == size:
            return data
    raise zipfile.BadZipFile("the file is truncated")


def _read_zip64_end(end: EndRecord, at: int, locator: bytes, record: bytes) -> EndRecord:
    """Return the ZIP64 end record. The short record must agree with it where it has a value."""
    _, disk, place, disks = _LOCATOR.unpack(locator)
    magic, size, _, _, *of_disks, here, members, length, offset = _ZIP64_END.unpack(record)
    wide = EndRecord(members, offset, length)
    if magic != _ZIP64_END_MAGIC or size != _ZIP64_END_REST or place != at:
        raise zipfile.BadZipFile("the ZIP64 end record is not where its locator says")
    if disk or any(of_disks) or disks != 1 or here != members:
        raise zipfile.BadZipFile("split archives are not supported")
    counts = end.members in (members, _COUNT_IN_ZIP64)
    if not (counts and end.offset in (offset, _IN_ZIP64) and end.size in (length, _IN_ZIP64)):
        raise zipfile.BadZipFile("the two end records differ")
    return wide


def pack_end_record(end: EndRecord) -> bytes:
    """Return the bytes of the end record."""
    return _END.pack(_END_MAGIC, 0, 0, end.members, end.members, end.size, end.offset, 0)


@dataclass(frozen=True)
class MemberHeader:
    """The fields of a member that its local header and the directory share."""

    name: bytes
    flags: int
    method: int
    time: tuple[int, int]
    """MS-DOS time and date."""
    sizes: tuple[int, int, int]
    """CRC, compressed and uncompressed size in bytes."""


def read_header(file: IO[bytes], at: int) -> tuple[MemberHeader, int] | None:
    """Read the local header at an offset; return it and the offset of the member's data, or None if it is damaged."""
    file.seek(at)
    data = file.read(_LOCAL.size)
    if len(data) < _LOCAL.size or not data.startswith(_LOCAL_MAGIC):
        return None
    _, _, flags, method, clock, day, checksum, size, unpacked, length, more = _LOCAL.unpack(data)
    name, extra = file.read(length), read_extra(file.read(more))
    if extra is None:
        return None
    if _IN_ZIP64 in (size, unpacked):
        if len(extra.get(_ZIP64, b"")) != 16:
            return None
        wide = struct.unpack("<QQ", extra[_ZIP64])
        unpacked, size = (new if old == _IN_ZIP64 else old for old, new in zip((unpacked, size), wide, strict=True))
    header = MemberHeader(name, flags, method, (clock, day), (checksum, size, unpacked))
    return header, at + _LOCAL.size + length + more


def pack_header(header: MemberHeader) -> bytes:
    """Return the bytes of a local header."""
    fields = (header.flags, header.method, *header.time, *header.sizes, len(header.name), 0)
    return _LOCAL.pack(_LOCAL_MAGIC, _VERSION, *fields) + header.name


def pack_directory_entry(header: MemberHeader, mode: int, offset: int) -> bytes:
    """Return the directory entry of a member; `mode` is its file mode, `offset` the place of its local header."""
    fields = (_UNIX | _VERSION, _VERSION, header.flags, header.method, *header.time, *header.sizes)
    lengths = (len(header.name), 0, 0)
    return _CENTRAL.pack(_CENTRAL_MAGIC, *fields, *lengths, 0, 0, mode << 16, offset) + header.name


def read_extra(data: bytes) -> dict[int, bytes] | None:
    """Return the extra fields of a member by id; None if they are damaged, repeated, or contain a second name."""
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
    """Return the possible sizes in bytes of a descriptor at `at` that holds `sizes`; empty if there is none."""
    file.seek(at)
    data = file.read(_DESCRIPTORS[-1].size)
    forms = _DESCRIPTORS[max(sizes) > _IN_ZIP64 :]
    return {form.size for form in forms if data[: form.size] == form.pack(_DESCRIPTOR_MAGIC, *sizes)}


class ArchiveWriter:
    """Writes an archive to an empty file, sequentially; all members get the same time."""

    def __init__(self, file: IO[bytes], date_time: DateTime) -> None:
        year, month, day, hour, minute, second = max(date_time, EARLIEST_TIME)
        # MS-DOS format: two-second steps, years since 1980
        self._time = hour << 11 | minute << 5 | second // 2, (year - EARLIEST_TIME[0]) << 9 | month << 5 | day
        self._file = file
        self._at = 0
        self._directory: list[bytes] = []

    def copy(self, name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, executable: bool) -> None:
        """Copy a member, still compressed, from an archive that `open_archive` verified; `name` is its new name.

        Raises `zipfile.BadZipFile` if the member is truncated, `InputError` if the archive would have 4 GiB.
        """
        source, mode = archive.fp, 0o100755 if executable else 0o100644
        found = read_header(source, info.header_offset) if source else None
        assert source and found  # `open_archive` verified the header
        self._begin(name, info.compress_type, (info.CRC, info.compress_size, info.file_size), mode)
        source.seek(found[1])
        left = info.compress_size
        while left:
            piece = source.read(min(left, 1 << 20))
            if not piece:
                raise zipfile.BadZipFile(f"{name} is truncated")
            self._write(piece)
            left -= len(piece)

    def add(self, name: str, data: bytes) -> None:
        """Add a member, uncompressed."""
        self._begin(name, zipfile.ZIP_STORED, (zlib.crc32(data), len(data), len(data)), 0o100644)
        self._write(data)

    def finish(self) -> None:
        """Write the directory and the end records; add nothing afterwards."""
        start = self._at
        for entry in self._directory:
            self._write(entry)
        self._write(pack_end_record(EndRecord(len(self._directory), start, self._at - start)))

    def _begin(self, name: str, method: int, sizes: tuple[int, int, int], mode: int) -> None:
        if max(self._at + sizes[1], sizes[2]) >= _IN_ZIP64:
            raise InputError("too large for a wheel", f"4 GiB with {name}", "build it for fewer archs")
        flags = 0 if name.isascii() else UTF8
        header = MemberHeader(name.encode("utf-8"), flags, method, self._time, sizes)
        self._directory.append(pack_directory_entry(header, mode, self._at))
        self._write(pack_header(header))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._at += len(data)
