"""Open the zip archive of a wheel only if every installer extracts the same, harmless files from it.

A zip file describes each member twice: in a local header, for readers that stream, and in the directory at the end, for
readers that seek. `zipfile` does not compare them. An archive is unambiguous only if both agree, if no bytes lie
between the members, and if each member unpacks to exactly the size and CRC in the directory.
"""

from __future__ import annotations

import errno
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import IO

from wheelfactory.core.errors import InputError
from wheelfactory.wheel.zip_format import (
    COMPRESSION_LEVEL_FLAGS,
    ENCRYPTED,
    HAS_DESCRIPTOR,
    UTF8,
    EndRecord,
    find_descriptor_sizes,
    pack_directory_entry,
    pack_end_record,
    pack_header,
    read_end_record,
    read_extra,
    read_header,
)

# what zipfile raises for a damaged or encrypted archive, or an unsupported compression method
_DAMAGE = (zipfile.BadZipFile, EOFError, IndexError, RuntimeError, ValueError, struct.error, zlib.error)

# unpacked size over packed size of an archive (zip bombs); the maximum of 15 real wheels, up to 570 MB, is 10
_MAX_RATIO = 100
# bytes that even the smallest archive may unpack to
_MIN_LIMIT = 1 << 26
_MAX_MEMBERS = 65_000
# faults reported of one archive; a hostile archive has millions
_MAX_FAULTS = 100
_MAX_NAME, _MAX_PART = 4096, 255
"""Linux's limits for a path and for one name in it, in bytes."""
_PIECE = 1 << 16


@dataclass(frozen=True)
class ArchiveFault:
    """What is wrong with a member; the text of `member` is ASCII, because the name may be hostile."""

    member: str
    expected: str
    found: str


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open the zip archive of a wheel for reading.

    Raises `InputError` before unpacking anything if the archive is damaged or ambiguous, and while reading if a member
    is damaged.
    """
    with _opened(path) as (archive, end):
        # before anything is unpacked: the first fault of the layout is enough to refuse the archive
        fault = next(_faults(archive, end), None)
        if fault:
            found = f"{fault.member} in {path.name}: expected {fault.expected}, found {fault.found}"
            raise InputError("unsafe archive", found, "do not install it; build or download it again")
        yield archive


def find_archive_faults(path: Path) -> tuple[ArchiveFault, ...]:
    """Find what makes an archive dangerous or ambiguous: faults of its layout, or else of its unpacked members.

    Raises `InputError` if the archive is damaged.
    """
    with _opened(path) as (archive, end):
        faults = tuple(islice(_faults(archive, end), _MAX_FAULTS))
        if faults:
            return faults
        assert archive.fp
        return tuple(islice(_content_faults(archive.fp, archive.infolist()), _MAX_FAULTS))


def find_noncanonical(path: Path, executable: Collection[str]) -> Iterator[ArchiveFault]:
    """Find where an archive differs from what `ArchiveWriter` writes; extra bytes could hide data.

    `executable` names the members with execute permission. Order, times and compression of the members may differ;
    every other byte of headers, directory and end record is compared.
    """
    with open_archive(path) as archive, path.open("rb") as file:
        members, directory = archive.infolist(), bytearray()
        for info in members:
            mode = 0o100755 if info.filename in executable else 0o100644
            found = read_header(file, info.header_offset)
            assert found  # `open_archive` verified it
            header = replace(found[0], flags=UTF8 if not info.filename.isascii() else 0)
            directory += pack_directory_entry(header, mode, info.header_offset)
            if info.is_dir():
                yield ArchiveFault(info.filename, "no entry for a folder", "an entry")
            elif info.external_attr >> 16 != mode:
                yield ArchiveFault(info.filename, f"mode {mode:o}", f"mode {info.external_attr >> 16:o}")
            else:
                file.seek(info.header_offset)
                if file.read(found[1] - info.header_offset) != pack_header(header):
                    yield ArchiveFault(info.filename, "a header as the factory writes it", "a different header")
        file.seek(archive.start_dir)
        if file.read() != directory + pack_end_record(EndRecord(len(members), archive.start_dir, len(directory))):
            yield ArchiveFault("(the directory)", "entries as the factory writes them", "different bytes")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, EndRecord]]:
    try:
        with path.open("rb") as file:
            end = read_end_record(file)  # first, because zipfile loads a directory of any size into memory
            with zipfile.ZipFile(file) as archive:
                if len(archive.infolist()) != end.members:
                    raise zipfile.BadZipFile(f"{len(archive.infolist())} members, the end record says {end.members}")
                yield archive, end
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a seek before the start of a file
            raise
        raise InputError("damaged zip file", f"{path} ({error})", "build or download it again") from None


def _faults(archive: zipfile.ZipFile, end: EndRecord) -> Iterator[ArchiveFault]:
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS:
        yield ArchiveFault("(all)", f"{_MAX_MEMBERS} members or fewer", f"{len(members)}")
        return
    if archive.start_dir != end.offset:  # zipfile finds the directory by its size, other readers by its offset
        moved = archive.start_dir - end.offset
        yield ArchiveFault(
            "(all)", "nothing before the first member, and the directory at its offset", f"{moved} bytes"
        )
    for info in members:
        yield from _name_faults(info)
        yield from _kind_faults(info)
    yield from _shared_names(members)
    unpacked, packed = sum(info.file_size for info in members), archive.start_dir
    # the sum, not each member: many small bombs are one large bomb
    if unpacked > _MAX_RATIO * packed + _MIN_LIMIT:
        yield ArchiveFault("(all)", f"at most {_MAX_RATIO} times {packed} bytes unpacked", f"{unpacked} bytes")
    assert archive.fp
    yield from _layout_faults(archive.fp, members, archive.start_dir)


def _name_faults(info: zipfile.ZipInfo) -> Iterator[ArchiveFault]:
    """Find names that point outside the target folder, or that two tools read differently."""
    name = info.orig_filename
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or re.match("[A-Za-z]:", name) or "\\" in name:
        yield ArchiveFault(name, "a relative path with slashes", "an absolute path or a backslash")
    elif any(part in ("", ".", "..") for part in parts):
        yield ArchiveFault(name, "a path without empty parts, '.' and '..'", "such a part")
    if len(name.encode()) > _MAX_NAME or any(len(part.encode()) > _MAX_PART for part in parts):
        yield ArchiveFault(name[:_MAX_PART], f"a name of at most {_MAX_PART} bytes", "a longer name")
    # control characters (C0, C1) can rewrite what a terminal shows
    if re.search(r"[\x00-\x1f\x7f-\x9f]", name):
        yield ArchiveFault(name, "a printable name", "a control character")
    if not (name.isascii() or info.flag_bits & UTF8):
        yield ArchiveFault(name, "a name marked as UTF-8", "no UTF-8 flag")
    # field 0x7075 is a second, Unicode name, which only some tools use
    if read_extra(info.extra) is None:
        yield ArchiveFault(name, "one name and valid extra fields", "a second name, or damaged extra fields")


def _kind_faults(info: zipfile.ZipInfo) -> Iterator[ArchiveFault]:
    name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
    # a link could redirect later members to any place; 0 is a writer without Unix modes
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR and not info.is_dir()):
        found = "a symbolic link" if kind == stat.S_IFLNK else f"a file of mode {kind:o}"
        yield ArchiveFault(name, "a regular file", found)
    if info.flag_bits & ENCRYPTED:
        yield ArchiveFault(name, "an unencrypted file", "an encrypted file")
    elif info.flag_bits & ~(COMPRESSION_LEVEL_FLAGS | HAS_DESCRIPTOR | UTF8):
        yield ArchiveFault(name, "flags that every tool supports", f"flags {info.flag_bits:#x}")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        yield ArchiveFault(name, "a stored or deflated file", f"compression method {info.compress_type}")
    elif info.compress_type == zipfile.ZIP_STORED and (
        info.compress_size != info.file_size or info.flag_bits & HAS_DESCRIPTOR
    ):
        yield ArchiveFault(name, "a stored file with one size, in its header", "two sizes, or a descriptor")
    if info.is_dir() and info.file_size:
        yield ArchiveFault(name, "a folder without content", f"{info.file_size} bytes")


def _shared_names(members: Sequence[zipfile.ZipInfo]) -> Iterator[ArchiveFault]:
    """Find names that occur twice, or as file and folder: which of the two is installed depends on the tool."""
    # with NUL for the slash, the members of a folder sort directly after a file of the folder's name
    for name, following in pairwise(sorted(info.filename.replace("/", "\0") for info in members)):
        if following.removesuffix("\0") == name.removesuffix("\0"):
            yield ArchiveFault(name.replace("\0", "/"), "one member of this name", "two")
        elif following.startswith(f"{name}\0"):
            yield ArchiveFault(name.replace("\0", "/"), "a file or a folder", "both")


def _layout_faults(file: IO[bytes], members: Sequence[zipfile.ZipInfo], end: int) -> Iterator[ArchiveFault]:
    """Find bytes between the members, and headers that differ from the directory; stop at the first wrong offset."""
    places = {0}
    for info in sorted(members, key=lambda info: info.header_offset):
        if info.header_offset not in places:
            yield _displaced(info.filename, info.header_offset, max(places))
            return
        found = read_header(file, info.header_offset)
        if found is None:
            yield ArchiveFault(info.filename, "a header before the member", "no header")
            return
        header, content = found
        sizes = (info.CRC, info.compress_size, info.file_size)
        follow = bool(info.flag_bits & HAS_DESCRIPTOR)
        agrees = (
            header.name == info.orig_filename.encode("utf-8" if info.flag_bits & UTF8 else "cp437")
            and header.method == info.compress_type
            and not (header.flags ^ info.flag_bits) & ~COMPRESSION_LEVEL_FLAGS
            and (header.sizes == sizes or (follow and header.sizes == (0, 0, 0)))
        )
        if not agrees:
            yield ArchiveFault(info.filename, "the header and the directory to agree", "another name, size or method")
        end_at = content + info.compress_size
        places = {end_at + size for size in find_descriptor_sizes(file, end_at, sizes)} if follow else {end_at}
        if not places:
            yield ArchiveFault(info.filename, "a descriptor with the right sizes", "a wrong descriptor, or none")
            return
    if end not in places:
        yield _displaced("(the directory)", end, max(places))


def _displaced(what: str, found: int, expected: int) -> ArchiveFault:
    how = f"{found - expected} bytes in between" if found > expected else "an overlap"
    return ArchiveFault(what, "to start where the member before it ends", how)


def _content_faults(file: IO[bytes], members: Sequence[zipfile.ZipInfo]) -> Iterator[ArchiveFault]:
    """Find members that do not unpack to exactly the size and CRC in the directory."""
    # zipfile stops at the size in the directory, other tools at the end of the compressed data
    for info in members:
        found = read_header(file, info.header_offset)
        assert found  # `_layout_faults` found none
        if _unpack(file, found[1], info) != (info.CRC, info.file_size):
            yield ArchiveFault(info.filename, "to unpack to the size and CRC in the directory", "other bytes")


def _unpack(file: IO[bytes], at: int, info: zipfile.ZipInfo) -> tuple[int, int] | None:
    """Return CRC and size of the unpacked member; None if it is damaged, too long, or has trailing bytes."""
    file.seek(at)
    packed = _read_packed(file, info.compress_size)
    crc = size = 0
    try:
        for made in _inflate(packed) if info.compress_type == zipfile.ZIP_DEFLATED else packed:
            crc, size = zlib.crc32(made, crc), size + len(made)
            if size > info.file_size:
                return None
    except zlib.error:
        return None
    return crc, size


def _read_packed(file: IO[bytes], left: int) -> Iterator[bytes]:
    while left and (piece := file.read(min(left, _PIECE))):
        left -= len(piece)
        yield piece


def _inflate(packed: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for piece in packed:
        rest = piece
        while rest and not inflater.eof:
            yield inflater.decompress(rest, _PIECE)
            rest = inflater.unconsumed_tail
        if rest or inflater.unused_data:
            raise zlib.error("bytes after the end of the compressed data")
    yield inflater.flush()
    if not inflater.eof:
        raise zlib.error("truncated")
