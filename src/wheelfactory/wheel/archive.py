"""The zip archive of a wheel: opened only if every reader and every installer sees the same, harmless files in it.

A zip file says everything twice, which `zipfile` takes on trust: in a header before each member, for whoever unpacks
while downloading, and in the directory at its end, for whoever seeks. It is one thing to everybody only if both say the
same, nothing stands in between, and each member unpacks to exactly what they say.
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

_DAMAGE = (zipfile.BadZipFile, EOFError, IndexError, RuntimeError, ValueError, struct.error, zlib.error)
"""What zipfile raises for an archive that is damaged, encrypted, or packed in a way it does not know."""

_MOST_TIMES = 100
"""How many times its size an archive may unpack to; the most of 15 real wheels, up to 570 MB, is 10."""
_ALWAYS = 1 << 26
"""Bytes that an archive may unpack to whatever its size."""
_MOST_MEMBERS = 1 << 16
_MOST_FAULTS = 100
"""Faults that are told of one archive; whoever made it needs no longer list, and a hostile one has millions."""
_LONGEST_NAME, _LONGEST_PART = 4096, 255
"""Bytes of a path and of a name in it that Linux takes."""
_PIECE = 1 << 16


@dataclass(frozen=True)
class ArchiveFault:
    """Why an archive is not opened: the member, what every member must be, and what this one is."""

    member: str
    expected: str
    found: str


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip archive of a wheel, to read from.

    Raises `InputError` if it is damaged, found at whatever member, or has a fault, before anything is unpacked.
    """
    with _opened(path) as (archive, end):
        fault = next(_faults(archive, end), None)
        if fault:
            found = f"{fault.member} in {path.name}: expected {fault.expected}, found {fault.found}"
            raise InputError("archive refused", found, "do not install it; build or download it again")
        yield archive


def find_archive_faults(path: Path) -> tuple[ArchiveFault, ...]:
    """What makes an archive dangerous or ambiguous: its layout, and if there is nothing, what its members unpack to.

    Raises `InputError` if it is damaged.
    """
    with _opened(path) as (archive, end):
        faults = tuple(islice(_faults(archive, end), _MOST_FAULTS))
        if faults:
            return faults
        assert archive.fp
        return tuple(islice(_content_faults(archive.fp, archive.infolist()), _MOST_FAULTS))


def find_noncanonical(path: Path, executable: Collection[str]) -> Iterator[ArchiveFault]:
    """Where an archive is other than `ArchiveWriter` would write it, though every tool may read it.

    `executable` names the members that are programs. The order of the members, their times, and how they are packed may
    be any; every other byte of headers, directory and end record is compared.
    """
    with open_archive(path) as archive, path.open("rb") as file:
        place = archive.start_dir
        for info in archive.infolist():
            mode = 0o100755 if info.filename in executable else 0o100644
            found = read_header(file, info.header_offset)
            assert found  # `open_archive` has looked at it
            header = replace(found[0], flags=UTF8 if not info.filename.isascii() else 0)
            entry = pack_directory_entry(header, mode, info.header_offset)
            if info.is_dir():
                yield ArchiveFault(ascii(info.filename), "no entry for a folder", "one")
            elif info.external_attr >> 16 != mode:
                yield ArchiveFault(ascii(info.filename), f"mode {mode:o}", f"mode {info.external_attr >> 16:o}")
            elif _bytes_at(file, info.header_offset, found[1]) != pack_header(header):
                yield ArchiveFault(ascii(info.filename), "a header as the factory writes it", "another form, or more")
            elif _bytes_at(file, place, place + len(entry)) != entry:
                yield ArchiveFault(
                    ascii(info.filename), "an entry in the directory as the factory writes it", "another form"
                )
                return  # where the next one begins is not known
            place += len(entry)
        end = pack_end_record(EndRecord(len(archive.infolist()), archive.start_dir, place - archive.start_dir))
        if _bytes_at(file, place, place + len(end) + 1) != end:
            yield ArchiveFault("(the directory)", "an end as the factory writes it", "another form, or more")


def _bytes_at(file: IO[bytes], start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, EndRecord]]:
    try:
        with path.open("rb") as file:
            end = read_end_record(file)  # before zipfile, which takes all that is called directory into memory
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
    if len(members) > _MOST_MEMBERS:
        yield ArchiveFault("(all)", f"{_MOST_MEMBERS} members or fewer", f"{len(members)}")
        return
    if archive.start_dir != end.offset:  # zipfile goes by the size of the directory, others by where it is said to be
        moved = archive.start_dir - end.offset
        yield ArchiveFault(
            "(all)", "nothing before the first member, and the directory where it is said to be", f"{moved} bytes"
        )
    for info in members:
        yield from _name_faults(info)
        yield from _kind_faults(info)
    yield from _shared_names(members)
    unpacked, packed = sum(info.file_size for info in members), archive.start_dir
    if unpacked > _MOST_TIMES * packed + _ALWAYS:
        yield ArchiveFault(
            "(all)", f"{packed} bytes to unpack to {_MOST_TIMES} times that at most", f"{unpacked} bytes"
        )
    assert archive.fp
    yield from _layout_faults(archive.fp, members, archive.start_dir)


def _name_faults(info: zipfile.ZipInfo) -> Iterator[ArchiveFault]:
    """A name that an installer could take for a place outside of where it installs, or that two tools read apart."""
    name = info.orig_filename
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or re.match("[A-Za-z]:", name) or "\\" in name:
        yield ArchiveFault(ascii(name), "a relative path with slashes", "a path of another kind")
    elif any(part in ("", ".", "..") for part in parts):
        yield ArchiveFault(ascii(name), "a path without empty parts, '.' and '..'", "such a part")
    if len(name.encode()) > _LONGEST_NAME or any(len(part.encode()) > _LONGEST_PART for part in parts):
        yield ArchiveFault(ascii(name[:_LONGEST_PART]), "a name that a file system takes", "a longer one")
    if re.search(r"[\x00-\x1f\x7f-\x9f]", name):
        yield ArchiveFault(ascii(name), "a name that can be printed", "a control character")
    if not (name.isascii() or info.flag_bits & UTF8):
        yield ArchiveFault(ascii(name), "a name in UTF-8", "one that is not marked as such")
    if read_extra(info.extra) is None:
        yield ArchiveFault(ascii(name), "one name, and extra fields that can be read", "others")


def _kind_faults(info: zipfile.ZipInfo) -> Iterator[ArchiveFault]:
    name, kind = ascii(info.filename), stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR and not info.is_dir()):
        found = "a symbolic link" if kind == stat.S_IFLNK else f"a file of mode {kind:o}"
        yield ArchiveFault(name, "a plain file", found)
    if info.flag_bits & ENCRYPTED:
        yield ArchiveFault(name, "a file that can be read", "one that is encrypted")
    elif info.flag_bits & ~(COMPRESSION_LEVEL_FLAGS | HAS_DESCRIPTOR | UTF8):
        yield ArchiveFault(name, "a file that every tool can read", f"one with flags {info.flag_bits:#x}")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        yield ArchiveFault(name, "a file stored or deflated", f"one packed by method {info.compress_type}")
    elif info.compress_type == zipfile.ZIP_STORED and (
        info.compress_size != info.file_size or info.flag_bits & HAS_DESCRIPTOR
    ):
        yield ArchiveFault(name, "a stored file with one size, said before it", "another")
    if info.is_dir() and info.file_size:
        yield ArchiveFault(name, "a folder without content", f"{info.file_size} bytes")


def _shared_names(members: Sequence[zipfile.ZipInfo]) -> Iterator[ArchiveFault]:
    """Two members of one name: which of them is installed depends on the tool.

    With no character before the slash, what is in a folder stands right behind what has the folder's name.
    """
    for name, following in pairwise(sorted(info.filename.replace("/", "\0") for info in members)):
        if following.removesuffix("\0") == name.removesuffix("\0"):
            yield ArchiveFault(ascii(name.replace("\0", "/")), "one member of a name", "two")
        elif following.startswith(f"{name}\0"):
            yield ArchiveFault(ascii(name.replace("\0", "/")), "a file or a folder", "both")


def _layout_faults(file: IO[bytes], members: Sequence[zipfile.ZipInfo], end: int) -> Iterator[ArchiveFault]:
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
            yield ArchiveFault(ascii(info.filename), "a header before the member", "none")
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
            yield ArchiveFault(
                ascii(info.filename), "what the directory of the archive says", "another name, size or method"
            )
        end_at = content + info.compress_size
        places = {end_at + size for size in find_descriptor_sizes(file, end_at, sizes)} if follow else {end_at}
        if not places:
            yield ArchiveFault(ascii(info.filename), "the sizes that follow it to be right", "others, or none")
            return
    if end not in places:
        yield _displaced("(the directory)", end, max(places))


def _displaced(what: str, found: int, expected: int) -> ArchiveFault:
    how = f"{found - expected} bytes in between" if found > expected else "one that overlaps it"
    return ArchiveFault(what, "its own bytes, right behind those of the member before", how)


def _content_faults(file: IO[bytes], members: Sequence[zipfile.ZipInfo]) -> Iterator[ArchiveFault]:
    """Members that do not unpack to exactly what the directory says; nothing is kept, and no more made than it says.

    `zipfile` stops where the directory says a member ends and others where the packed data does.
    """
    for info in members:
        found = read_header(file, info.header_offset)
        assert found  # members whose headers are wrong are not looked into
        if _unpacked(file, found[1], info) != (info.CRC, info.file_size):
            yield ArchiveFault(
                ascii(info.filename), "to unpack to what the directory of the archive says", "something else"
            )


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
