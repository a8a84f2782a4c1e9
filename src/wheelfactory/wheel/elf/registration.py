"""What the start-up code of a HIP library registers: its bundles, and the names of its kernels.

clang writes a row into the section ``.hipFatBinSegment`` for each object with device code (magic, version, the address
of the bundle, an unused pointer), and the mangled name of each kernel as a constant. Source: clang's CGCUDANV.cpp.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from wheelfactory.wheel.elf.code_object import read_registered_names
from wheelfactory.wheel.elf.dynamic import read_dynamic_rows
from wheelfactory.wheel.elf.image import DamagedElfError, ElfImage

FATBIN = b".hip_fatbin"
"""The section with the device code of a HIP library, one bundle for each linked object."""

_ROWS = b".hipFatBinSegment"
_ROW = struct.Struct("<IIQQ")
_MAGIC, _VERSION = 0x48495046, 1
_BUNDLE_AT = 8

_RELA, _RELASZ, _RELR = 7, 8, 36
_RELOCATION, _RELATIVE = struct.Struct("<QQq"), 8


@dataclass(frozen=True)
class Registration:
    """What the start-up code of a library gives the HIP runtime."""

    bundles: tuple[int | None, ...]
    """The offset in `FATBIN` of the bundle of each row; None for a row that is not as a compiler writes it."""
    kernels: frozenset[str]
    """The mangled names of kernels in the library's constants."""


def read_registration(image: ElfImage, known: Iterable[str] = ()) -> Registration:
    """Read the registrations of a shared library; for `known` see `read_registered_names`. Raises `DamagedElfError`.

    The rows of an object file, which the linker completes, have no address yet: each is None.
    """
    rows, device = image.find_section(_ROWS), image.find_section(FATBIN)
    if rows is None:
        return Registration((), read_registered_names(image, known))
    if rows.size % _ROW.size:
        raise DamagedElfError(f"registrations of {rows.size} bytes")
    pointers, bundles = _read_pointers(image), list[int | None]()
    table = image.unpack_table(_ROW, rows.offset, rows.size // _ROW.size)
    for place, (magic, version, stored, unused) in zip(count(rows.address, _ROW.size), table):
        address = stored if pointers is None else pointers.get(place + _BUNDLE_AT, 0)
        is_row = device and (magic, version, unused) == (_MAGIC, _VERSION, 0)
        inside = device and 0 <= address - device.address < device.size
        bundles.append(address - device.address if device and is_row and inside else None)
    return Registration(tuple(bundles), read_registered_names(image, known))


def _read_pointers(image: ElfImage) -> Mapping[int, int] | None:
    """Return where the loader writes addresses, and which; None if it adds to what the file has there already."""
    table = dict(read_dynamic_rows(image))
    if _RELR in table:
        return None
    if _RELA not in table:
        return {}
    rows = table.get(_RELASZ, 0) // _RELOCATION.size
    relocations = image.unpack_table(_RELOCATION, image.file_offset(table[_RELA]), rows)
    return {place: addend for place, kind, addend in relocations if kind == _RELATIVE}
