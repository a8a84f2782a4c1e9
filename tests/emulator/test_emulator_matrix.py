"""Matrix instructions against a matrix product whose entries are all different, element by element from the layouts."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from emulated import execute, new_wave
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array


def as_bits(number: float, kind: str) -> bytes:
    if kind == "f32":
        return struct.pack("<f", number)
    if kind == "f16":
        return struct.pack("<e", number)
    return struct.pack("<f", number)[2:] if kind == "bf16" else struct.pack("<b", int(number))


def distinct(rows: int, depth: int, kind: str, start: int) -> Array:
    """Return a matrix of different numbers that a kind holds exactly, or nearly different ones if it holds too few."""
    numbers = np.arange(start, start + rows * depth)
    if kind == "i8":
        return ((numbers * 37) % 255 - 127).reshape(rows, depth)
    if kind == "bf16":
        return ((numbers % 127 + 1) * 2.0 ** (numbers // 127 % 8 - 4)).reshape(rows, depth)
    return (numbers / 8 - 40).reshape(rows, depth)


def lane_words(matrix: Array, lane_of: dict[tuple[int, int], list[tuple[int, int]]], kind: str, size: int) -> Array:
    """Return registers (count, lanes) that have each element at the lanes and positions of `lane_of`."""
    width = len(as_bits(0, kind))
    places = [place for each in lane_of.values() for place in each]
    data = np.zeros((size, (1 + max(position for _, position in places)) * width), np.uint8)
    for element, targets in lane_of.items():
        for lane, position in targets:
            data[lane, position * width : (position + 1) * width] = list(as_bits(float(matrix[element]), kind))
    registers: Array = np.ascontiguousarray(data).view(np.uint32).T
    return registers


MFMA = [
    ("v_mfma_f32_32x32x8_f16", 32, 8, "f16"),
    ("v_mfma_f32_16x16x16_f16", 16, 16, "f16"),
    ("v_mfma_f32_32x32x8bf16_1k", 32, 8, "bf16"),
    ("v_mfma_f32_16x16x16bf16_1k", 16, 16, "bf16"),
    ("v_mfma_f32_32x32x8_bf16", 32, 8, "bf16"),
    ("v_mfma_f32_32x32x16_f16", 32, 16, "f16"),
    ("v_mfma_f32_16x16x32_bf16", 16, 32, "bf16"),
    ("v_mfma_f32_32x32x2_f32", 32, 2, "f32"),
    ("v_mfma_f32_16x16x4f32", 16, 4, "f32"),
    ("v_mfma_i32_32x32x16_i8", 32, 16, "i8"),
    ("v_mfma_i32_16x16x32_i8", 16, 32, "i8"),
]


@pytest.mark.parametrize(("name", "rows", "depth", "kind"), MFMA)
def test_mfma(name: str, rows: int, depth: int, kind: str) -> None:
    each = depth * rows // 64
    lane_of = {(row, k): [(row + rows * (k // each), k % each)] for row in range(rows) for k in range(depth)}
    a, b = distinct(rows, depth, kind, 0), distinct(rows, depth, kind, 7)
    count, results = each * len(as_bits(0, kind)) // 4, rows * rows // 64
    addend = np.arange(results * 64, dtype=np.float64).reshape(results, 64) - 100
    integer = name.startswith("v_mfma_i32")
    w = new_wave()
    w.registers[16 : 16 + count] = lane_words(a, lane_of, kind, 64)
    w.registers[32 : 32 + count] = lane_words(b, lane_of, kind, 64)
    w.registers[256 : 256 + results] = addend.astype(np.int32 if integer else np.float32).view(np.uint32)
    w.set_exec(1)  # matrix instructions ignore it
    execute(f"{name} v[64:{63 + results}], v[16:{15 + count}], v[32:{31 + count}], a[0:{results - 1}]", "gfx950", w)
    for lane in range(64):
        for register in range(results):
            row = 4 * (lane // 16) + register
            if rows == 32:
                row = 8 * (register // 4) + 4 * (lane // 32) + register % 4
            exact = (
                sum(float(x) * float(y) for x, y in zip(a[row], b[lane % rows], strict=True)) + addend[register, lane]
            )
            found = w.i[64 + register][lane] if integer else w.f[64 + register][lane]
            assert found == (exact if integer else np.float32(exact)), (lane, register)


@pytest.mark.parametrize(
    ("arch", "kind"), [("gfx1100", "f16"), ("gfx1151", "bf16"), ("gfx1201", "f16"), ("gfx1201", "bf16")]
)
def test_wmma(arch: str, kind: str) -> None:
    copied = arch.startswith("gfx11")
    a, b = distinct(16, 16, kind, 0), distinct(16, 16, kind, 7)
    if copied:  # each half of the wave has all elements
        lane_of = {(row, k): [(row, k), (row + 16, k)] for row in range(16) for k in range(16)}
    else:
        lane_of = {(row, k): [(row + 16 * (k // 8), k % 8)] for row in range(16) for k in range(16)}
    count = 8 if copied else 4
    addend = np.arange(256, dtype=np.float32).reshape(8, 32)
    w = new_wave(arch)
    w.registers[16 : 16 + count] = lane_words(a, lane_of, kind, 32)
    w.registers[32 : 32 + count] = lane_words(b, lane_of, kind, 32)
    w.registers[8:16] = addend.view(np.uint32)
    execute(f"v_wmma_f32_16x16x16_{kind} v[8:15], v[16:{15 + count}], v[32:{31 + count}], v[8:15]", arch, w)
    product = a.astype(np.float64) @ b.astype(np.float64).T
    for lane in range(32):
        for register in range(8):
            row = 2 * register + lane // 16 if copied else 8 * (lane // 16) + register
            assert w.f[8 + register][lane] == np.float32(product[row, lane % 16] + addend[register, lane])


def test_an_mfma_with_a_constant_addend_and_denormals() -> None:
    """The matrix instructions of gfx90a for 16 bits flush denormals; those of gfx942 do not."""
    for arch, name, expected in (("gfx942", "16x16x16_f16", 2.0**-20), ("gfx90a", "16x16x16f16", 0.0)):
        w = new_wave()
        w.registers[0] = 1  # 2**-24, a denormal
        w.registers[2] = 0x4C00  # 16
        execute(f"v_mfma_f32_{name} v[4:7], v[0:1], v[2:3], 0", arch, w)
        assert w.f[4][0] == 4 * expected


@pytest.mark.parametrize(
    "text",
    [
        "v_mfma_f32_32x32x4_2b_f16 v[0:31], v[32:33], v[34:35], 0",
        "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0 cbsz:1",
        "v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[4:5], v[6:7], 0",
        "v_wmma_f16_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]",
    ],
)
def test_other_matrix_instructions_are_not_run(text: str) -> None:
    with pytest.raises(NotRunError):
        execute(text, "gfx1100" if "wmma" in text else "gfx942")
