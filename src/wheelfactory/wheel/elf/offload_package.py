"""Read offload packages: the device code in a ``.llvm.offloading`` section, which waits for a device link.

clang's new offload driver writes them for relocatable device code. The device link turns them into a bundle; an
ordinary linker drops the section, so no library that it writes has this code. A package is a header, entries of a fixed
size, and for each entry an image and keys with values, such as ``arch=gfx942``. All numbers are little-endian.
Sources: LLVM, "Clang Offload Packager" for version 1; objects of clang 21 to 23 for both versions (23 writes version 2,
where a package has several entries and each value has a length).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory.wheel.elf.offload import Bundle, CodeObject
from wheelfactory.wheel.elf.targets import Target, read_arch

PACKAGE_MAGIC = b"\x10\xff\x10\xad"

# magic, version, size, offset of the entries, their size (version 1) or count (version 2)
_HEADER = struct.Struct("<4sIQQQ")
# image kind, offload kind, flags, offset and count of the keys, offset and size of the image
_ENTRY = struct.Struct("<HHIQQQQ")
# offsets of a key and of its value, by version; in version 2 also the size of the value
_KEYS = {1: struct.Struct("<QQ"), 2: struct.Struct("<QQQ")}
_KINDS = {1: "openmp", 2: "cuda", 4: "hip", 8: "sycl"}
_NOT_ZERO = re.compile(rb"[^\0]")

# entries and keys of a section; an object has one entry for each arch, each with two keys
_MAX_ENTRIES = 1 << 12
_MAX_KEYS = 1 << 4
_MAX_TEXT = 1 << 8

_Range = tuple[int, int]


def read_packages(section: memoryview) -> tuple[Bundle, ...]:
    """Read the packages of a section as bundles of the form ``package v1`` or ``package v2``.

    Raises `DamagedElfError` for the first damaged package, and for unknown content.
    """
    packages: list[Bundle] = []
    at = entries = 0
    while match := _NOT_ZERO.search(section, at):  # packages are padded with zeros
        packages.append(_read_package(section[match.start() :], match.start()))
        at = match.start() + packages[-1].size
        entries += len(packages[-1].entries)
        if entries > _MAX_ENTRIES:
            raise DamagedElfError(f"more than {_MAX_ENTRIES} entries in the offload packages")
    return tuple(packages)


def _read_package(data: memoryview, at: int) -> Bundle:
    if data[: len(PACKAGE_MAGIC)] != PACKAGE_MAGIC:
        # not skipped: it could be device code
        raise DamagedElfError(f"unknown content at {at}, where an offload package was expected")
    try:
        _, version, size, start, number = _HEADER.unpack_from(data)
        if version not in _KEYS:
            raise ValueError(f"unknown version {version}")
        if not _HEADER.size <= size <= len(data):
            raise ValueError(f"its {size} bytes are outside the section")
        count = number if version > 1 else 1
        if not 1 <= count <= _MAX_ENTRIES or (version == 1 and number != _ENTRY.size):
            raise ValueError(f"{count} entries, the first of {number} bytes")
        package = data[:size]
        used: list[_Range] = [(0, _HEADER.size), (start, count * _ENTRY.size)]
        entries = tuple(
            _read_entry(package, start + index * _ENTRY.size, _KEYS[version], used) for index in range(count)
        )
        if sum(entry.size for entry in entries) > size:
            raise ValueError("its images overlap")
        _require_zeros_between(package, used)
    except (struct.error, ValueError, KeyError) as error:
        raise DamagedElfError(f"offload package at {at}: {error}") from None
    return Bundle(at, f"package v{version}", size, size, entries)


def _read_entry(package: memoryview, at: int, form: struct.Struct, used: list[_Range]) -> CodeObject:
    """Read the entry at an offset, and add the ranges that it refers to."""
    _, kind, _, keys_at, key_count, image_at, size = _ENTRY.unpack(_take(package, at, _ENTRY.size))
    if key_count > _MAX_KEYS:
        raise ValueError(f"an entry with {key_count} keys")
    rows = form.iter_unpack(_take(package, keys_at, key_count * form.size))
    values = {_read_text(package, row[0], used): _read_text(package, row[1], used) for row in rows}
    used += [(keys_at, key_count * form.size), (image_at, size)]
    arch = values.get("arch", "")
    name = f"{_KINDS[kind]}-{values.get('triple', '')}--{arch}"
    head = bytes(_take(package, image_at, size)[:64])
    return CodeObject(name, Target.from_id(arch), size, read_arch(head))


def _take(package: memoryview, at: int, size: int) -> memoryview:
    if at + size > len(package):
        raise ValueError(f"{size} bytes at {at} are outside the package")
    return package[at : at + size]


def _read_text(package: memoryview, at: int, used: list[_Range]) -> str:
    """Read a text up to its zero byte, and add its range."""
    text, end, _ = bytes(package[at : at + _MAX_TEXT]).partition(b"\0")
    if not end:
        raise ValueError(f"no text at {at}")
    used.append((at, len(text) + 1))
    return text.decode("utf-8", "backslashreplace")


def _require_zeros_between(package: memoryview, used: Iterable[_Range]) -> None:
    """Raise `ValueError` if bytes that nothing refers to are not zero: they could be device code."""
    end = 0
    for at, size in sorted([*used, (len(package), 0)]):
        if at > end and _NOT_ZERO.search(package[end:at]):
            raise ValueError(f"{at - end} bytes at {end} belong to no entry and are not zero")
        end = max(end, at + size)
