"""The zip archive of a wheel: opened only if every reader and every installer sees the same, harmless files in it."""

from __future__ import annotations

import errno
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.wheel.zip_format import ENCRYPTED, PACKING, SIZES_FOLLOW, UTF8, End, read_end, read_extra
from wheelfactory.wheel.zip_layout import Fault, find_content_faults, find_layout_faults

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


def find_faults(path: Path) -> tuple[Fault, ...]:
    """What makes an archive dangerous or ambiguous: its layout, and if there is nothing, what its members unpack to.

    Raises `InputError` if it is damaged.
    """
    with _opened(path) as (archive, end):
        faults = tuple(islice(_faults(archive, end), _MOST_FAULTS))
        if faults:
            return faults
        assert archive.fp
        return tuple(islice(find_content_faults(archive.fp, archive.infolist()), _MOST_FAULTS))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, End]]:
    try:
        with path.open("rb") as file:
            end = read_end(file)  # before zipfile, which takes all that is called directory into memory
            with zipfile.ZipFile(file) as archive:
                if len(archive.infolist()) != end.members:
                    raise zipfile.BadZipFile(f"{len(archive.infolist())} members, the end record says {end.members}")
                yield archive, end
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # a seek before the start of a file
            raise
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError("damaged zip file", f"{path} ({error})", "build or download it again")


def _faults(archive: zipfile.ZipFile, end: End) -> Iterator[Fault]:
    members = archive.infolist()
    if len(members) > _MOST_MEMBERS:
        yield Fault("(all)", f"{_MOST_MEMBERS} members or fewer", f"{len(members)}")
        return
    if archive.start_dir != end.offset:  # zipfile goes by the size of the directory, others by where it is said to be
        moved = archive.start_dir - end.offset
        yield Fault(
            "(all)", "nothing before the first member, and the directory where it is said to be", f"{moved} bytes"
        )
    for info in members:
        yield from _name_faults(info)
        yield from _kind_faults(info)
    yield from _shared_names(members)
    unpacked, packed = sum(info.file_size for info in members), archive.start_dir
    if unpacked > _MOST_TIMES * packed + _ALWAYS:
        yield Fault("(all)", f"{packed} bytes to unpack to {_MOST_TIMES} times that at most", f"{unpacked} bytes")
    assert archive.fp
    yield from find_layout_faults(archive.fp, members, archive.start_dir)


def _name_faults(info: zipfile.ZipInfo) -> Iterator[Fault]:
    """A name that an installer could take for a place outside of where it installs, or that two tools read apart."""
    name = info.orig_filename
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or re.match("[A-Za-z]:", name) or "\\" in name:
        yield Fault(ascii(name), "a relative path with slashes", "a path of another kind")
    elif any(part in ("", ".", "..") for part in parts):
        yield Fault(ascii(name), "a path without empty parts, '.' and '..'", "such a part")
    if len(name.encode()) > _LONGEST_NAME or any(len(part.encode()) > _LONGEST_PART for part in parts):
        yield Fault(ascii(name[:_LONGEST_PART]), "a name that a file system takes", "a longer one")
    if re.search(r"[\x00-\x1f\x7f-\x9f]", name):
        yield Fault(ascii(name), "a name that can be printed", "a control character")
    if not (name.isascii() or info.flag_bits & UTF8):
        yield Fault(ascii(name), "a name in UTF-8", "one that is not marked as such")
    if read_extra(info.extra) is None:
        yield Fault(ascii(name), "one name, and extra fields that can be read", "others")


def _kind_faults(info: zipfile.ZipInfo) -> Iterator[Fault]:
    name, kind = ascii(info.filename), stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR and not info.is_dir()):
        found = "a symbolic link" if kind == stat.S_IFLNK else f"a file of mode {kind:o}"
        yield Fault(name, "a plain file", found)
    if info.flag_bits & ENCRYPTED:
        yield Fault(name, "a file that can be read", "one that is encrypted")
    elif info.flag_bits & ~(PACKING | SIZES_FOLLOW | UTF8):
        yield Fault(name, "a file that every tool can read", f"one with flags {info.flag_bits:#x}")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        yield Fault(name, "a file stored or deflated", f"one packed by method {info.compress_type}")
    elif info.compress_type == zipfile.ZIP_STORED and (
        info.compress_size != info.file_size or info.flag_bits & SIZES_FOLLOW
    ):
        yield Fault(name, "a stored file with one size, said before it", "another")
    if info.is_dir() and info.file_size:
        yield Fault(name, "a folder without content", f"{info.file_size} bytes")


def _shared_names(members: Sequence[zipfile.ZipInfo]) -> Iterator[Fault]:
    """Two members of one name: which of them is installed depends on the tool.

    With no character before the slash, what is in a folder stands right behind what has the folder's name.
    """
    for name, following in pairwise(sorted(info.filename.replace("/", "\0") for info in members)):
        if following.removesuffix("\0") == name.removesuffix("\0"):
            yield Fault(ascii(name.replace("\0", "/")), "one member of a name", "two")
        elif following.startswith(f"{name}\0"):
            yield Fault(ascii(name.replace("\0", "/")), "a file or a folder", "both")
