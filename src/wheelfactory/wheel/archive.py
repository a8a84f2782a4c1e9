"""The zip archive of a wheel: opened only if every reader and every installer sees the same, harmless files in it."""

from __future__ import annotations

import errno
import lzma
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from wheelfactory.errors import InputError

_DAMAGE = (zipfile.BadZipFile, EOFError, IndexError, RuntimeError, ValueError, lzma.LZMAError, struct.error, zlib.error)
"""What zipfile raises for an archive that is damaged, encrypted, or packed in a way it does not know."""

_MOST_TIMES = 100
"""How many times its size an archive may unpack to; the most of 15 real wheels, up to 570 MB, is 10."""
_ALWAYS = 1 << 26
"""Bytes that an archive may unpack to whatever its size."""
_MOST_MEMBERS = 1 << 16
_LOCAL_HEADER = struct.Struct("<4s5HIIIHH")
_UTF8, _ENCRYPTED, _SIZES_FOLLOW = 0x800, 0x1, 0x8
_ZIP64 = 0xFFFFFFFF


@dataclass(frozen=True)
class Fault:
    """Why an archive is not opened: the member, what every member must be, and what this one is."""

    member: str
    expected: str
    found: str


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip archive of a wheel, to read from.

    Raises `InputError` if it is damaged, found at whatever member, or has a fault, before anything is unpacked.
    """
    with _opened(path) as archive:
        fault = next(_faults(archive), None)
        if fault:
            found = f"{fault.member} in {path.name}: expected {fault.expected}, found {fault.found}"
            raise InputError("archive refused", found, "do not install it; build or download it again")
        yield archive


def find_faults(path: Path) -> tuple[Fault, ...]:
    """Everything that makes an archive dangerous or ambiguous. Raises `InputError` if it is damaged."""
    with _opened(path) as archive:
        return tuple(_faults(archive))


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # bz2 says damage without a number, a seek before the start with it
            raise
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError("damaged zip file", f"{path} ({error})", "build or download it again")


def _faults(archive: zipfile.ZipFile) -> Iterator[Fault]:
    members = archive.infolist()
    if len(members) > _MOST_MEMBERS:
        yield Fault("(all)", f"{_MOST_MEMBERS} members or fewer", f"{len(members)}")
        return
    for info in members:
        yield from _name_faults(info)
        yield from _kind_faults(info)
    yield from _shared_names(members)
    yield from _sizes(archive, members)
    yield from _local_headers(archive, members)


def _name_faults(info: zipfile.ZipInfo) -> Iterator[Fault]:
    """A name that an installer could take for a place outside of where it installs, or that two tools read apart."""
    name = info.orig_filename
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or re.match("[A-Za-z]:", name) or "\\" in name:
        yield Fault(ascii(name), "a relative path with slashes", "a path of another kind")
    elif any(part in ("", ".", "..") for part in parts):
        yield Fault(ascii(name), "a path without empty parts, '.' and '..'", "such a part")
    if re.search(r"[\x00-\x1f\x7f]", name):
        yield Fault(ascii(name), "a name that can be printed", "a control character")
    if not (name.isascii() or info.flag_bits & _UTF8):
        yield Fault(ascii(name), "a name in UTF-8", "one that is not marked as such")


def _kind_faults(info: zipfile.ZipInfo) -> Iterator[Fault]:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        found = "a symbolic link" if kind == stat.S_IFLNK else f"a file of mode {kind:o}"
        yield Fault(ascii(info.filename), "a plain file", found)
    if info.flag_bits & _ENCRYPTED:
        yield Fault(ascii(info.filename), "a file that can be read", "one that is encrypted")


def _shared_names(members: Sequence[zipfile.ZipInfo]) -> Iterator[Fault]:
    """Two members of one name: which of them is installed depends on the tool."""
    seen: set[str] = set()
    folders = {folder for info in members for folder in _folders(info.filename)}
    for info in members:
        name = info.filename.removesuffix("/")
        if name in seen:
            yield Fault(ascii(name), "one member of a name", "two")
        elif name in folders and not info.is_dir():
            yield Fault(ascii(name), "a file or a folder", "both")
        seen.add(name)


def _folders(name: str) -> Iterator[str]:
    """The folders above a member; few levels, so that a hostile name costs no more than its length squared."""
    parts = name.split("/")[:-1]
    for depth in range(1, min(len(parts), 64) + 1):
        yield "/".join(parts[:depth])


def _sizes(archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo]) -> Iterator[Fault]:
    """Sizes that cannot be true, or would fill a disk: members that overlap share their bytes (a zip bomb does so)."""
    end = archive.start_dir
    for info in sorted(members, key=lambda info: info.header_offset, reverse=True):
        if info.header_offset + _LOCAL_HEADER.size + len(info.filename) + info.compress_size > end:
            yield Fault(ascii(info.filename), "a member of its own bytes", "one that overlaps what follows it")
        end = info.header_offset
    if end:
        yield Fault("(all)", "nothing before the first member", f"{end} bytes")
    unpacked, packed = sum(info.file_size for info in members), archive.start_dir
    if unpacked > _MOST_TIMES * packed + _ALWAYS:
        yield Fault("(all)", f"{packed} bytes to unpack to {_MOST_TIMES} times that at most", f"{unpacked} bytes")


def _local_headers(archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo]) -> Iterator[Fault]:
    """Tools that stream read the header before each member, others the directory at the end: both must say the same."""
    file = archive.fp
    assert file
    for info in members:
        header = _local_header(file, info)
        if header is None:
            yield Fault(ascii(info.filename), "a header before the member", "none")
        elif not _agrees(header, info):
            yield Fault(ascii(info.filename), "what the directory of the archive says", "another name, size or method")


def _local_header(file: IO[bytes], info: zipfile.ZipInfo) -> tuple[int, int, int, int, int, bytes] | None:
    """Flags, method, CRC, packed and unpacked size, and name, as they stand before a member."""
    file.seek(info.header_offset)
    data = file.read(_LOCAL_HEADER.size)
    if len(data) < _LOCAL_HEADER.size or not data.startswith(b"PK\x03\x04"):
        return None
    _, _, flags, method, _, _, crc, packed, unpacked, length, _ = _LOCAL_HEADER.unpack(data)
    return flags, method, crc, packed, unpacked, file.read(length)


def _agrees(header: tuple[int, int, int, int, int, bytes], info: zipfile.ZipInfo) -> bool:
    flags, method, crc, packed, unpacked, name = header
    follow = bool(flags & _SIZES_FOLLOW)  # then a writer that could not seek has left zeros here
    return (
        name == info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
        and method == info.compress_type
        and crc in ({info.CRC, 0} if follow else {info.CRC})
        and packed in ({info.compress_size, _ZIP64, 0} if follow else {info.compress_size, _ZIP64})
        and unpacked in ({info.file_size, _ZIP64, 0} if follow else {info.file_size, _ZIP64})
    )
