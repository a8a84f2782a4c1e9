"""The bytes of a zip file around and inside its members, which `zipfile` takes on trust.

A zip file says everything twice: in a header before each member, for whoever unpacks while downloading, and in the
directory at its end, for whoever seeks. It is one thing to everybody only if both say the same, nothing stands in
between, and each member unpacks to exactly what they say. Source: PKWARE, "APPNOTE.TXT".
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

ENCRYPTED, SIZES_FOLLOW, UTF8 = 0x1, 0x8, 0x800
"""Flags of a member; after one whose sizes follow stands a descriptor, because its writer could not seek."""
PACKING = 0x6
"""Flags that say how hard the writer tried; they mean nothing to a reader."""

_LOCAL, _EXTRA = struct.Struct("<4s5HIIIHH"), struct.Struct("<HH")
_END, _LOCATOR, _END64 = struct.Struct("<4s4HIIH"), struct.Struct("<4sIQI"), struct.Struct("<4sQHHIIQQQQ")
_DESCRIPTORS = struct.Struct("<4sIII"), struct.Struct("<4sIQQ")
_ZIP64, _OTHER_NAME = 0x0001, 0x7075
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF

_LONGEST_DIRECTORY = 1 << 24
"""Bytes of a directory: `zipfile` takes some 15 times as much memory. That of torch, 15,000 members, has 2 MB."""
_PIECE = 1 << 16


@dataclass(frozen=True)
class Fault:
    """Why an archive is not opened: the member, what every member must be, and what this one is."""

    member: str
    expected: str
    found: str


@dataclass(frozen=True)
class End:
    """What the end record says of the directory: its members, where it begins, and its bytes."""

    members: int
    offset: int
    size: int


def read_end(file: IO[bytes]) -> End:
    """The end record of a zip file. Raises `BadZipFile` unless it stands last, and if the directory is absurdly long.

    Where a comment may follow, some tools take the first that looks like an end record, and others the last.
    """
    at = file.seek(0, os.SEEK_END) - _END.size
    magic, disk, first_disk, here, members, size, offset, comment = _END.unpack(_read(file, at, _END.size))
    if magic != b"PK\x05\x06" or comment:
        raise zipfile.BadZipFile("it does not end with an end record")
    end = End(members, offset, size)
    if disk or first_disk or here != members:
        raise zipfile.BadZipFile("one of several disks")
    if at >= _LOCATOR.size and (locator := _read(file, at - _LOCATOR.size, _LOCATOR.size)).startswith(b"PK\x06\x07"):
        at -= _LOCATOR.size + _END64.size
        end = _wider(end, at, locator, _read(file, at, _END64.size))
    if end.size > _LONGEST_DIRECTORY:
        raise zipfile.BadZipFile(f"a directory of {end.size} bytes, more than {_LONGEST_DIRECTORY}")
    return end


def _read(file: IO[bytes], at: int, size: int) -> bytes:
    if at >= 0:
        file.seek(at)
        if len(data := file.read(size)) == size:
            return data
    raise zipfile.BadZipFile("it is cut short")


def _wider(end: End, at: int, locator: bytes, record: bytes) -> End:
    """The end record of an archive that is too large for the plain one, which must agree as far as it goes."""
    _, disk, place, disks = _LOCATOR.unpack(locator)
    magic, size, _, _, *of_disks, here, members, length, offset = _END64.unpack(record)
    wide = End(members, offset, length)
    if magic != b"PK\x06\x06" or size != _END64.size - 12 or place != at:
        raise zipfile.BadZipFile("the larger end record is not where its locator says")
    if disk or any(of_disks) or disks != 1 or here != members:
        raise zipfile.BadZipFile("one of several disks")
    if not (end.members in (members, _MAX16) and end.offset in (offset, _MAX32) and end.size in (length, _MAX32)):
        raise zipfile.BadZipFile("two end records that differ")
    return wide


@dataclass(frozen=True)
class _Header:
    """What stands before a member."""

    flags: int
    method: int
    sizes: tuple[int, int, int]
    """CRC, packed and unpacked bytes."""
    name: bytes
    content: int
    """Where the packed bytes begin."""


def find_layout_faults(file: IO[bytes], members: Sequence[zipfile.ZipInfo], end: int) -> Iterator[Fault]:
    """What stands between the members, and headers that do not say what the directory says.

    Nothing behind a member that is not where it must be is looked at.
    """
    places = {0}
    for info in sorted(members, key=lambda info: info.header_offset):
        if info.header_offset not in places:
            yield _displaced(ascii(info.filename), info.header_offset, max(places))
            return
        header = _read_header(file, info.header_offset)
        if header is None:
            yield Fault(ascii(info.filename), "a header before the member", "none")
            return
        if not _agrees(header, info):
            yield Fault(ascii(info.filename), "what the directory of the archive says", "another name, size or method")
        places = _ends(file, header.content + info.compress_size, info)
        if not places:
            yield Fault(ascii(info.filename), "the sizes that follow it to be right", "others, or none")
            return
    if end not in places:
        yield _displaced("(the directory)", end, max(places))


def _displaced(what: str, found: int, expected: int) -> Fault:
    how = f"{found - expected} bytes in between" if found > expected else "one that overlaps it"
    return Fault(what, "its own bytes, right behind those of the member before", how)


def _read_header(file: IO[bytes], at: int) -> _Header | None:
    file.seek(at)
    data = file.read(_LOCAL.size)
    if len(data) < _LOCAL.size or not data.startswith(b"PK\x03\x04"):
        return None
    _, _, flags, method, _, _, crc, packed, unpacked, length, more = _LOCAL.unpack(data)
    name, extra = file.read(length), read_extra(file.read(more))
    if extra is None:
        return None
    if _MAX32 in (packed, unpacked):
        if len(extra.get(_ZIP64, b"")) != 16:
            return None
        wide = struct.unpack("<QQ", extra[_ZIP64])
        unpacked, packed = (new if old == _MAX32 else old for old, new in zip((unpacked, packed), wide, strict=True))
    return _Header(flags, method, (crc, packed, unpacked), name, at + _LOCAL.size + length + more)


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


def _agrees(header: _Header, info: zipfile.ZipInfo) -> bool:
    follow = bool(info.flag_bits & SIZES_FOLLOW)
    sizes = (info.CRC, info.compress_size, info.file_size)
    return (
        header.name == info.orig_filename.encode("utf-8" if info.flag_bits & UTF8 else "cp437")
        and header.method == info.compress_type
        and not (header.flags ^ info.flag_bits) & ~PACKING
        and (header.sizes == sizes or (follow and header.sizes == (0, 0, 0)))
    )


def _ends(file: IO[bytes], at: int, info: zipfile.ZipInfo) -> set[int]:
    """Where a member may end whose packed bytes end at an offset; nowhere if wrong sizes follow."""
    if not info.flag_bits & SIZES_FOLLOW:
        return {at}
    file.seek(at)
    data = file.read(_DESCRIPTORS[-1].size)
    sizes = (info.CRC, info.compress_size, info.file_size)
    wide = max(sizes) > _MAX32
    return {at + form.size for form in _DESCRIPTORS[wide:] if data[: form.size] == form.pack(b"PK\x07\x08", *sizes)}


def find_content_faults(file: IO[bytes], members: Sequence[zipfile.ZipInfo]) -> Iterator[Fault]:
    """Members that do not unpack to exactly what the directory says; nothing is kept, and no more made than it says.

    `zipfile` stops where the directory says a member ends and others where the packed data does.
    """
    for info in members:
        header = _read_header(file, info.header_offset)
        assert header  # members whose headers are wrong are not looked into
        if _unpacked(file, header.content, info) != (info.CRC, info.file_size):
            yield Fault(ascii(info.filename), "to unpack to what the directory of the archive says", "something else")


def _unpacked(file: IO[bytes], at: int, info: zipfile.ZipInfo) -> tuple[int, int] | None:
    """CRC and size of what a member unpacks to; None if that is damaged, too long, or ends before its bytes do."""
    file.seek(at)
    packed = _packed(file, info.compress_size)
    crc = size = 0
    try:
        for made in _inflated(packed) if info.compress_type == zipfile.ZIP_DEFLATED else packed:
            crc, size = zlib.crc32(made, crc), size + len(made)
            if size > info.file_size:
                return None
    except zlib.error:
        return None
    return crc, size


def _packed(file: IO[bytes], left: int) -> Iterator[bytes]:
    while left and (piece := file.read(min(left, _PIECE))):
        left -= len(piece)
        yield piece


def _inflated(packed: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for piece in packed:
        rest = piece
        while rest and not inflater.eof:
            yield inflater.decompress(rest, _PIECE)
            rest = inflater.unconsumed_tail
        if rest or inflater.unused_data:
            raise zlib.error("bytes behind the end of the packed data")
    yield inflater.flush()
    if not inflater.eof:
        raise zlib.error("cut short")
