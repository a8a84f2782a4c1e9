"""Read an ELF file: loading, symbols, the device code in it and what its start-up code registers of that, in one value.

clang writes a row into the section ``.hipFatBinSegment`` for each object with device code (magic, version, the address
of the bundle, an unused pointer), and the mangled name of each kernel as a constant. Source: clang's CGCUDANV.cpp.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count, islice

from wheelfactory.wheel.elf.code_object import arch_from_flags, read_registered_names
from wheelfactory.wheel.elf.dynamic import Dynamic, read_dynamic, read_dynamic_rows
from wheelfactory.wheel.elf.image import EM_AMDGPU, Buffer, DamagedElfError, ElfImage
from wheelfactory.wheel.elf.linker_layout import find_layout_faults
from wheelfactory.wheel.elf.offload import Bundle, DeviceCode, read_bundles, sum_device_code
from wheelfactory.wheel.elf.offload_package import read_packages

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


_PACKAGES, _SHT_LLVM_OFFLOADING = b".llvm.offloading", 0x6FFF4C0B
"""The section with device code that waits for a device link, which LLVM finds by its type."""

_WAITING_KERNELS, _WAITING_KERNEL_SIZE = b"llvm_offload_entries", 56
"""The section that names kernels of relocatable device code; it stays in a library whose linker dropped that code.

Source: objects of clang 21 to 23. Without relocatable device code there is none, or (clang 21) one for each object,
with a longer name.
"""


@dataclass(frozen=True, kw_only=True)
class ElfFile(Dynamic):
    """What an ELF file tells the loader, and its device code."""

    name: str
    size: int
    """Bytes."""
    bundles: tuple[Bundle, ...]
    registration: Registration
    """What the start-up code gives the HIP runtime; more bundles than `bundles` if an object has no device code."""
    packages: tuple[Bundle, ...]
    """Device code that waits for a device link: the HIP runtime does not find it."""
    relocatable_kernels: int
    """The number of kernels that were compiled as relocatable device code by the new offload driver."""
    layout_faults: tuple[tuple[str, str], ...]
    """What a linker must write, and what the file has instead (`linker_layout.find_layout_faults`)."""
    code_for: str | None
    """The arch if the file is itself a code object, else None."""

    @property
    def device_code(self) -> Mapping[str, DeviceCode]:
        """The code in `bundles` by target id, such as ``gfx90a:xnack-``."""
        return sum_device_code(self.bundles)


def read_elf(name: str, data: Buffer) -> ElfFile:
    """Read an ELF file. Raises `DamagedElfError` if its tables or bundles are damaged."""
    image = ElfImage(data)
    section = image.find_section(FATBIN)
    kernels = image.find_section(_WAITING_KERNELS)
    bundles = read_bundles(image.section_bytes(section)) if section else ()
    known = {kernel for bundle in bundles for entry in bundle.entries for kernel in entry.kernels}
    return ElfFile(
        **vars(read_dynamic(image)),
        name=name,
        size=len(image.data),
        bundles=bundles,
        registration=read_registration(image, known),
        packages=_read_packages(image),
        relocatable_kernels=kernels.size // _WAITING_KERNEL_SIZE if kernels else 0,
        # a hostile file may have millions of faults
        layout_faults=tuple(islice(find_layout_faults(image), 10)),
        code_for=arch_from_flags(image.flags) if image.machine == EM_AMDGPU else None,
    )


def _read_packages(image: ElfImage) -> tuple[Bundle, ...]:
    found = next((item for item in image.sections() if item.type == _SHT_LLVM_OFFLOADING), None)
    section = found or image.find_section(_PACKAGES)
    return read_packages(image.section_bytes(section)) if section else ()
