"""Read the kernels of a code object: descriptors, arguments and resources."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from wheelfactory.wheel.elf.code_object import arch_from_flags, read_symbol_addresses
from wheelfactory.wheel.elf.image import Buffer, DamagedElfError, ElfImage

_PT_NOTE, _NT_METADATA = 4, 32
_DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
# tags of MessagePack and the `struct` formats behind them: sizes of texts, lists and maps, and numbers
_SIZED = {0xD9: "B", 0xDA: "H", 0xDB: "I", 0xDC: "H", 0xDD: "I", 0xDE: "H", 0xDF: "I"}
_NUMBERS = {0xCC: "B", 0xCD: "H", 0xCE: "I", 0xCF: "Q", 0xD0: "b", 0xD1: "h", 0xD2: "i", 0xD3: "q"}

_MAX_DEPTH = 8
"""Nesting of metadata; LLVM writes four levels."""


@dataclass(frozen=True)
class Argument:
    """A kernel argument; `offset` and `size` are in bytes, `kind` is a value kind of LLVM such as ``by_value``."""

    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class Kernel:
    """A kernel of a code object. Sizes are in bytes; `scratch` is of one lane, `local` of a work-group."""

    name: str
    arch: str
    wave_size: int
    max_threads: int
    arguments: tuple[Argument, ...]
    argument_bytes: int
    local: int
    scratch: int
    vector_registers: int
    scalar_registers: int
    vector_spills: int
    """Vector registers that the compiler keeps in scratch memory; they make a kernel slow."""
    scalar_spills: int
    rsrc1: int
    rsrc2: int
    properties: int
    preload: int
    """The descriptor's fields ``compute_pgm_rsrc1`` and so on, as LLVM names them."""


def read_kernels(data: Buffer) -> dict[str, Kernel]:
    """Return the kernels of a code object by name. Raises `DamagedElfError`."""
    image = ElfImage(data)
    symbols = read_symbol_addresses(image)
    try:
        rows = _read_metadata(image)["amdhsa.kernels"]
        return {row[".name"]: _read_kernel(image, row, symbols[row[".symbol"]]) for row in rows}
    except (LookupError, TypeError, struct.error, UnicodeDecodeError) as error:
        raise DamagedElfError(f"kernel metadata: {error!r}") from None


def _read_kernel(image: ElfImage, row: dict[str, Any], descriptor: int) -> Kernel:
    local, scratch, size, _, _, rsrc1, rsrc2, properties, preload = image.unpack(
        _DESCRIPTOR, image.file_offset(descriptor)
    )
    if row.get(".uses_dynamic_stack"):
        raise DamagedElfError("a kernel with a dynamic stack")
    return Kernel(
        name=row[".name"],
        arch=arch_from_flags(image.flags),
        wave_size=row[".wavefront_size"],
        max_threads=row[".max_flat_workgroup_size"],
        arguments=tuple(Argument(each[".offset"], each[".size"], each[".value_kind"]) for each in row.get(".args", ())),
        argument_bytes=size,
        local=local,
        scratch=scratch,
        vector_registers=row[".vgpr_count"],
        scalar_registers=row[".sgpr_count"],
        vector_spills=row.get(".vgpr_spill_count", 0),
        scalar_spills=row.get(".sgpr_spill_count", 0),
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        properties=properties,
        preload=preload,
    )


def _read_metadata(image: ElfImage) -> Any:
    for segment in image.segments:
        note = bytes(image.bytes_at(segment.offset, segment.file_size)) if segment.type == _PT_NOTE else b""
        while len(note) >= 12:
            name_size, size, kind = struct.unpack_from("<III", note)
            start = 12 + (name_size + 3 & ~3)
            if kind == _NT_METADATA and note[12 : 12 + name_size] == b"AMDGPU\0":
                return _MessagePack(note[start : start + size]).read()
            note = note[start + (size + 3 & ~3) :]
    raise DamagedElfError("no kernel metadata")


class _MessagePack:
    """Read MessagePack, the format of kernel metadata: maps, lists, texts, integers, booleans."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read(self, depth: int = 0) -> Any:
        """Read the next value."""
        tag = self._number("B")
        if depth > _MAX_DEPTH:
            raise DamagedElfError("kernel metadata is nested too deeply")
        if tag < 0x80 or tag >= 0xE0:
            return tag if tag < 0x80 else tag - 256
        if tag in _NUMBERS:
            return self._number(_NUMBERS[tag])
        if tag in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[tag]
        count = self._number(_SIZED[tag]) if tag in _SIZED else tag & (31 if tag & 0x20 else 15)
        if tag < 0x90 or tag in (0xDE, 0xDF):
            return {self.read(depth + 1): self.read(depth + 1) for _ in range(count)}
        if tag < 0xA0 or tag in (0xDC, 0xDD):
            return [self.read(depth + 1) for _ in range(count)]
        self._at += count
        return self._data[self._at - count : self._at].decode()

    def _number(self, code: str) -> int:
        (value,) = struct.unpack_from(f">{code}", self._data, self._at)
        self._at += struct.calcsize(code)
        return int(value)
