"""Kernels of a code object: descriptor and metadata of a small one, and damaged ones."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from wheelfactory.emulator.code_object import Argument, read_kernels
from wheelfactory.wheel.elf.image import DamagedElfError

METADATA = {
    "amdhsa.kernels": [
        {
            ".name": "add",
            ".symbol": "add.kd",
            ".wavefront_size": 64,
            ".max_flat_workgroup_size": 256,
            ".vgpr_count": 300,
            ".sgpr_count": 70000,
            ".vgpr_spill_count": 592,
            ".uses_dynamic_stack": False,
            ".args": [
                {".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
                {".offset": 8, ".size": 4, ".value_kind": "by_value"},
            ],
        }
    ],
    "a text of more than thirty-one bytes, which has another tag": None,
}


def pack(value: Any) -> bytes:
    """Return a value as MessagePack."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        sizes = ((128, ""), (1 << 8, "B"), (1 << 16, "H"), (1 << 32, "I"))
        code = next(code for limit, code in sizes if value < limit)
        return struct.pack(f">B{code}", 0xCC + "BHI".index(code), value) if code else bytes([value])
    if isinstance(value, str):
        data = value.encode()
        return (bytes([0xA0 | len(data)]) if len(data) < 32 else b"\xd9" + bytes([len(data)])) + data
    if isinstance(value, list):
        return bytes([0x90 | len(value)]) + b"".join(map(pack, value))
    pairs = b"".join(pack(key) + pack(item) for key, item in value.items())
    return (bytes([0x80 | len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))) + pairs


def code_object(metadata: bytes, *, note: bytes = b"AMDGPU\0\0") -> bytes:
    """Return an ELF file for gfx942 with one descriptor, its symbol, and a metadata note."""
    descriptor = struct.pack("<III4xq20xIIIHHI", 1024, 16, 24, 0x100, 3, 0xF0000, 0x384, 8, 14, 0)
    notes = struct.pack("<III", 7, len(metadata), 32) + note + metadata + bytes(-len(metadata) % 4)
    names = b"\0add.kd\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x11, 0, 1, 0x400, 64)
    parts, at, places = b"", 64 + 2 * 56, []
    for part in (descriptor, notes, names, symbols):
        parts += bytes(-len(parts) % 8)
        places.append((at + len(parts), len(part)))
        parts += part
    sections_at = at + len(parts)
    sections = bytes(64)
    for kind, (offset, size), link in ((3, places[2], 0), (11, places[3], 1)):
        sections += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, link, 0, 1, 0)
    header = b"\x7fELF" + bytes([2, 1, 1, 64, 3]) + bytes(7)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, sections_at, 0x4C, 64, 56, 2, 64, 3, 0)
    segments = struct.pack("<IIQQQQQQ", 1, 4, places[0][0], 0x400, 0x400, 64, 64, 8)
    segments += struct.pack("<IIQQQQQQ", 4, 4, *[places[1][0]] * 3, places[1][1], places[1][1], 4)
    return header + segments + parts + sections


def test_a_kernel_and_its_resources() -> None:
    kernel = read_kernels(code_object(pack(METADATA)))["add"]
    assert (kernel.arch, kernel.wave_size, kernel.max_threads) == ("gfx942", 64, 256)
    assert kernel.arguments == (Argument(0, 8, "global_buffer"), Argument(8, 4, "by_value"))
    assert (kernel.local, kernel.scratch, kernel.argument_bytes) == (1024, 16, 24)
    assert (kernel.rsrc1, kernel.rsrc2, kernel.properties, kernel.preload) == (0xF0000, 0x384, 8, 14)
    assert (kernel.vector_registers, kernel.scalar_registers) == (300, 70000)
    assert (kernel.vector_spills, kernel.scalar_spills) == (592, 0)


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (b"", "kernel metadata"),
        (pack({"amdhsa.kernels": [{}]}), "KeyError"),
        (pack({"amdhsa.kernels": 1}), "TypeError"),
        (pack(METADATA)[:40], "kernel metadata"),
        (nested(20), "nested too deeply"),
        (b"\xdf\xff\xff\xff\xff\xa0", "kernel metadata"),
        (b"\xc7", "kernel metadata"),
        (pack(METADATA).replace(b"add.kd", b"sub.kd"), "sub.kd"),
        (pack(METADATA).replace(b"\xb3.uses_dynamic_stack\xc2", b"\xb3.uses_dynamic_stack\xc3"), "dynamic stack"),
    ],
)
def test_damaged_metadata(metadata: bytes, message: str) -> None:
    with pytest.raises(DamagedElfError, match=message):
        read_kernels(code_object(metadata))


def test_no_metadata() -> None:
    with pytest.raises(DamagedElfError, match="no kernel metadata"):
        read_kernels(code_object(pack(METADATA), note=b"AMDXXX\0\0"))
    with pytest.raises(DamagedElfError, match="no ELF magic"):
        read_kernels(b"code")
