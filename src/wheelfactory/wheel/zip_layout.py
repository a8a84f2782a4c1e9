"""The bytes of a zip file around and inside its members, which `zipfile` takes on trust.

A zip file says everything twice: in a header before each member, for whoever unpacks while downloading, and in the
directory at its end, for whoever seeks. It is one thing to everybody only if both say the same, nothing stands in
between, and each member unpacks to exactly what they say.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from wheelfactory.wheel.zip_format import PACKING, SIZES_FOLLOW, UTF8, Header, descriptor_sizes, read_header

_PIECE = 1 << 16


@dataclass(frozen=True)
class Fault:
    """Why an archive is not opened: the member, what every member must be, and what this one is."""

    member: str
    expected: str
    found: str


def find_layout_faults(file: IO[bytes], members: Sequence[zipfile.ZipInfo], end: int) -> Iterator[Fault]:
    """What stands between the members, and headers that do not say what the directory says.

    Nothing behind a member that is not where it must be is looked at.
    """
    places = {0}
    for info in sorted(members, key=lambda info: info.header_offset):
        if info.header_offset not in places:
            yield _displaced(ascii(info.filename), info.header_offset, max(places))
            return
        found = read_header(file, info.header_offset)
        if found is None:
            yield Fault(ascii(info.filename), "a header before the member", "none")
            return
        header, content = found
        if not _agrees(header, info):
            yield Fault(ascii(info.filename), "what the directory of the archive says", "another name, size or method")
        places = _ends(file, content + info.compress_size, info)
        if not places:
            yield Fault(ascii(info.filename), "the sizes that follow it to be right", "others, or none")
            return
    if end not in places:
        yield _displaced("(the directory)", end, max(places))


def _displaced(what: str, found: int, expected: int) -> Fault:
    how = f"{found - expected} bytes in between" if found > expected else "one that overlaps it"
    return Fault(what, "its own bytes, right behind those of the member before", how)


def _agrees(header: Header, info: zipfile.ZipInfo) -> bool:
    follow = bool(info.flag_bits & SIZES_FOLLOW)
    return (
        header.name == info.orig_filename.encode("utf-8" if info.flag_bits & UTF8 else "cp437")
        and header.method == info.compress_type
        and not (header.flags ^ info.flag_bits) & ~PACKING
        and (header.sizes == _sizes(info) or (follow and header.sizes == (0, 0, 0)))
    )


def _ends(file: IO[bytes], at: int, info: zipfile.ZipInfo) -> set[int]:
    """Where a member may end whose packed bytes end at an offset; nowhere if wrong sizes follow."""
    if not info.flag_bits & SIZES_FOLLOW:
        return {at}
    return {at + size for size in descriptor_sizes(file, at, _sizes(info))}


def _sizes(info: zipfile.ZipInfo) -> tuple[int, int, int]:
    return info.CRC, info.compress_size, info.file_size


def find_content_faults(file: IO[bytes], members: Sequence[zipfile.ZipInfo]) -> Iterator[Fault]:
    """Members that do not unpack to exactly what the directory says; nothing is kept, and no more made than it says.

    `zipfile` stops where the directory says a member ends and others where the packed data does.
    """
    for info in members:
        found = read_header(file, info.header_offset)
        assert found  # members whose headers are wrong are not looked into
        if _unpacked(file, found[1], info) != (info.CRC, info.file_size):
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
