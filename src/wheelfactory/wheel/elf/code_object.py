"""Code objects: the GPU target that each is for, whether one is whole, and the names of its kernels.

A code object is a shared library for one AMD GPU target. Host code has the names of its kernels as constants, with
which it registers them. Standard library only: the compiles in a cell's image check their objects with it.

Source: LLVM, "User Guide for AMDGPU Backend": ELF header, note records, symbols, and kernel descriptor.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from wheelfactory.wheel.elf.image import EM_AMDGPU, PT_LOAD, SYMBOL, Buffer, DamagedElfError, ElfImage, StringTable

_TARGET_ID = re.compile(
    r"(?:^|-)(?P<arch>gfx[0-9a-z]+(?:-[0-9]+)*(?:-generic)?|amdgcnspirv)(?P<features>(?::[a-z]+[+-])*)\Z"
)

_NUMBERS = """
    20=gfx600 21=gfx601 3a=gfx602 22=gfx700 23=gfx701 24=gfx702 25=gfx703 26=gfx704 3b=gfx705 28=gfx801 29=gfx802
    2a=gfx803 3c=gfx805 2b=gfx810 2c=gfx900 2d=gfx902 2e=gfx904 2f=gfx906 30=gfx908 31=gfx909 3f=gfx90a 32=gfx90c
    40=gfx940 4b=gfx941 4c=gfx942 4f=gfx950 33=gfx1010 34=gfx1011 35=gfx1012 42=gfx1013 36=gfx1030 37=gfx1031
    38=gfx1032 39=gfx1033 3e=gfx1034 3d=gfx1035 45=gfx1036 41=gfx1100 46=gfx1101 47=gfx1102 44=gfx1103 43=gfx1150
    4a=gfx1151 55=gfx1152 58=gfx1153 48=gfx1200 4e=gfx1201 49=gfx1250 51=gfx9-generic 5f=gfx9-4-generic
    52=gfx10-1-generic 53=gfx10-3-generic 54=gfx11-generic 59=gfx12-generic
"""

# the arch of each EF_AMDGPU_MACH, the lowest byte of e_flags. Source: the output of LLVM 21's llc for each processor;
# for gfx940 and gfx941, which LLVM 21 dropped, LLVM's "User Guide for AMDGPU Backend"
MACHINES = {int(number, 16): arch for number, arch in (item.split("=") for item in _NUMBERS.split())}


@dataclass(frozen=True)
class Target:
    """An offload arch with compiled-in features: ``gfx90a:sramecc+:xnack-``."""

    arch: str
    features: tuple[str, ...] = ()
    """For example ``xnack-``; the code works with any setting of a feature that is not listed."""

    @classmethod
    def from_id(cls, text: str) -> Target | None:
        """Parse a target id or the id of a bundle entry; None for the host."""
        match = _TARGET_ID.search(text)
        if match is None:
            return None
        return cls(match["arch"], tuple(filter(None, match["features"].split(":"))))

    def __str__(self) -> str:
        return ":".join([self.arch, *self.features])


def arch_from_flags(flags: int) -> str:
    """Return the arch in a code object's e_flags."""
    number = flags & 0xFF
    return MACHINES.get(number, f"unknown arch {number:#x}")


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
