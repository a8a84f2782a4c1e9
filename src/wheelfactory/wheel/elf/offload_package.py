"""Read offload packages: the device code in a ``.llvm.offloading`` section, which waits for a device link.

clang's new offload driver writes them for relocatable device code. The device link turns them into a bundle; an
ordinary linker drops the section, so no library that it writes has this code. A package is a header, entries of a fixed
size, and for each entry an image and keys with values, such as ``arch=gfx942``. All numbers are little-endian. No wheel
of the factory may have a package, so bytes between the entries are ignored.
Sources: LLVM, "Clang Offload Packager" for version 1; objects of clang 21 to 23 for both versions (23 writes version 2,
where a package has several entries and each value has a length).
"""

from __future__ import annotations

import struct

from wheelfactory.wheel.elf.code_object import Target
from wheelfactory.wheel.elf.image import DamagedElfError
from wheelfactory.wheel.elf.offload import NOT_ZERO, Bundle, CodeObject

PACKAGE_MAGIC = b"\x10\xff\x10\xad"

# magic, version, size, offset of the entries, their size (version 1) or count (version 2)
_HEADER = struct.Struct("<4sIQQQ")
# image kind, offload kind, flags, offset and count of the keys, offset and size of the image
_ENTRY = struct.Struct("<HHIQQQQ")
# offsets of a key and of its value, by version; in version 2 also the size of the value
_KEYS = {1: struct.Struct("<QQ"), 2: struct.Struct("<QQQ")}
_KINDS = {1: "openmp", 2: "cuda", 4: "hip", 8: "sycl"}

# entries and keys of a section; an object has one entry for each arch, each with two keys
_MAX_ENTRIES = 1 << 12
_MAX_KEYS = 1 << 4
_MAX_TEXT = 1 << 8


def read_packages(section: memoryview) -> tuple[Bundle, ...]:
    """Read the packages of a section as bundles of the form ``package v1`` or ``package v2``.

    Raises `DamagedElfError` for the first damaged package, and for unknown content.
    """
    packages: list[Bundle] = []
    at = entries = 0
    while match := NOT_ZERO.search(section, at):  # packages are padded with zeros
        try:
            packages.append(_read_package(section[match.start() :], match.start()))
        except (struct.error, ValueError, KeyError) as error:
            raise DamagedElfError(f"offload package at {match.start()}: {error}") from None
        at = match.start() + packages[-1].size
        entries += len(packages[-1].entries)
        if entries > _MAX_ENTRIES:
            raise DamagedElfError(f"more than {_MAX_ENTRIES} entries in the offload packages")
    return tuple(packages)


def _read_package(data: memoryview, at: int) -> Bundle:
    magic, version, size, start, number = _HEADER.unpack_from(data)
    if magic != PACKAGE_MAGIC or version not in _KEYS:  # not skipped: it could be device code
        raise ValueError("unknown content or version")
    count = number if version > 1 else 1
    if not _HEADER.size <= size <= len(data) or count > _MAX_ENTRIES:
        raise ValueError(f"{count} entries in {size} bytes, of {len(data)} in the section")
    package = data[:size]
    table = _ENTRY.iter_unpack(_take(package, start, count * _ENTRY.size))
    return Bundle(at, f"package v{version}", size, size, tuple(_read_entry(package, row, version) for row in table))


def _read_entry(package: memoryview, row: tuple[int, ...], version: int) -> CodeObject:
    _, kind, _, keys_at, key_count, image_at, size = row
    if key_count > _MAX_KEYS:
        raise ValueError(f"an entry with {key_count} keys")
    _take(package, image_at, size)
    keys = _KEYS[version].iter_unpack(_take(package, keys_at, key_count * _KEYS[version].size))
    values = {_read_text(package, key[0]): _read_text(package, key[1]) for key in keys}
    arch = values.get("arch", "")
    return CodeObject(f"{_KINDS[kind]}-{values.get('triple', '')}--{arch}", Target.from_id(arch), size)


def _take(package: memoryview, at: int, size: int) -> memoryview:
    if at + size > len(package):
        raise ValueError(f"{size} bytes at {at} are outside the package")
    return package[at : at + size]


def _read_text(package: memoryview, at: int) -> str:
    text, end, _ = bytes(package[at : at + _MAX_TEXT]).partition(b"\0")
    if not end:
        raise ValueError(f"no text at {at}")
    return text.decode("utf-8", "backslashreplace")
