"""Check that a code object is whole, and name its kernels: a shared library for one AMD GPU target.

Host code has the names of its kernels as constants, with which it registers them. Standard library only: the compiles
in a cell's image check their objects with it.

Source: LLVM, "User Guide for AMDGPU Backend": ELF header, note records, symbols, and kernel descriptor.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable

from wheelfactory.wheel.elf.image import EM_AMDGPU, PT_LOAD, SYMBOL, Buffer, DamagedElfError, ElfImage, StringTable
from wheelfactory.wheel.elf.targets import arch_from_flags

TRIPLE = "amdgcn-amd-amdhsa"

_SHARED, _HSA = 3, 64
_DYNSYM, _NOTE = 11, 7
_EXECUTE = 1
_DESCRIPTOR, _DESCRIPTOR_SIZE = ".kd", 64
# the offset of the code from its descriptor
_ENTRY, _ENTRY_AT = struct.Struct("<q"), 16
# texts of MessagePack: fixstr, str 8, str 16; 13 and 7 letters
_TARGET = re.compile(rb"\xadamdhsa\.target(?:[\xa0-\xbf]|\xd9.|\xda..)([ -~]+)", re.DOTALL)
_KERNEL = re.compile(rb"\xa7\.symbol(?:[\xa0-\xbf]|\xd9.|\xda..)([ -~]+)\.kd", re.DOTALL)
# of a code object; CK's have 16 with clang 21
_MAX_SECTIONS = 1 << 10

_PROGBITS = 1
# the second is what the new offload driver writes
_CONSTANTS = re.compile(rb"\.l?rodata|\.llvm\.rodata\.offloading")
# C++ kernels have mangled names; a type's name, which is a constant too, lacks the prefix
_REGISTERED = re.compile(rb"(?<![^\0])_Z[0-9A-Za-z_.$]+(?=\0)")


def read_kernel_names(data: Buffer, target: str) -> tuple[str, ...]:
    """Return the names of the kernels of a code object, sorted, which must be one for `target` (``gfx90a:xnack-``).

    Header, note and symbols must agree, every byte must be in a table or a section, and every kernel must have a
    descriptor and code. Raises `DamagedElfError` if not.
    """
    image = ElfImage(data)
    if (image.type, image.machine, image.data[7]) != (_SHARED, EM_AMDGPU, _HSA):
        raise DamagedElfError("no shared library for an AMD GPU")
    if (arch := arch_from_flags(image.flags)) != target.partition(":")[0]:
        raise DamagedElfError(f"its header is of another arch, {arch}")
    if image.section_count > _MAX_SECTIONS:
        raise DamagedElfError(f"{image.section_count} sections")
    for wrong in image.uncovered_bytes():
        raise DamagedElfError(wrong)
    notes = b"".join(bytes(image.section_bytes(item)) for item in image.sections() if item.type == _NOTE)
    targets = [text.decode() for text in _TARGET.findall(notes)]
    if targets != [f"{TRIPLE}--{target}"]:
        raise DamagedElfError(f"its note is for {', '.join(targets) or 'no target'}")
    symbols = read_symbol_addresses(image)
    kernels = sorted(name.removesuffix(_DESCRIPTOR) for name in symbols if name.endswith(_DESCRIPTOR))
    if sorted(text.decode() for text in _KERNEL.findall(notes)) != kernels:
        raise DamagedElfError("its note and its symbols name other kernels")
    for kernel in kernels:
        _require_code(image, symbols, kernel)
    return tuple(kernels)


def read_symbol_addresses(image: ElfImage) -> dict[str, int]:
    """Return the address of each symbol that a code object defines, by name. Raises `DamagedElfError`."""
    sections = list(image.sections())
    tables = [item for item in sections if item.type == _DYNSYM]
    if len(tables) != 1 or tables[0].link >= len(sections):
        raise DamagedElfError(f"{len(tables)} tables of symbols")
    names = StringTable(image.section_bytes(sections[tables[0].link]))
    rows = image.unpack_table(SYMBOL, tables[0].offset, tables[0].size // SYMBOL.size)
    return {names.read(row[0]): row[4] for row in rows if row[0] and row[3]}


def _require_code(image: ElfImage, symbols: dict[str, int], kernel: str) -> None:
    descriptor = symbols[f"{kernel}{_DESCRIPTOR}"]
    data = image.bytes_at(image.file_offset(descriptor), _DESCRIPTOR_SIZE)
    start = descriptor + _ENTRY.unpack_from(data, _ENTRY_AT)[0]
    runs = [part for part in image.segments if part.type == PT_LOAD and part.flags & _EXECUTE]
    if start != symbols.get(kernel) or not any(0 <= start - part.address < part.file_size for part in runs):
        raise DamagedElfError(f"no code where the descriptor of {kernel[:80]} says")


def read_registered_names(image: ElfImage, known: Iterable[str] = ()) -> frozenset[str]:
    """Return the mangled names of kernels in the constants of host code, an object file or a library.

    A linker can put a text behind other constants, without a zero byte before it. Such a name is found if it is one of
    `known`, the kernels of the device code.
    """
    sections = [item for name, item in image.named_sections() if _CONSTANTS.match(name) and item.type == _PROGBITS]
    constants = list(map(image.section_bytes, sections))
    names = {found[0].decode() for data in constants for found in _REGISTERED.finditer(data)}
    for name in frozenset(known) - names:
        if any(re.search(re.escape(name.encode()) + b"\0", data) for data in constants):
            names.add(name)
    return frozenset(names)
