"""Matrix instructions: MFMA of gfx9 (64 lanes) and WMMA of gfx11 and gfx12 (32 lanes). They ignore EXEC.

Products are summed in float64 and rounded once. The ISA leaves the order and the rounding of partial sums open.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.families import Family
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array
from wheelfactory.emulator.operands import Operand, constant_bits, parse_operand
from wheelfactory.emulator.wave import Run, Wave

_MFMA = re.compile(r"v_mfma_(f32|i32)_(\d+)x(\d+)x(\d+)_?(f16|bf16|f32|i8)(?:_1k)?")
_WMMA = re.compile(r"v_wmma_f32_16x16x16_(f16|bf16)")
_SIZES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1}
"""Bytes of an element."""


def decode_matrix(instruction: Instruction, family: Family) -> Run:
    """Return what a matrix instruction does. Raises `NotRunError` for shapes and modifiers that are not modelled."""
    if instruction.modifiers:
        raise NotRunError(instruction.text)
    operands = [parse_operand(text) for text in instruction.operands]
    if match := _MFMA.fullmatch(instruction.name):
        return _decode_mfma(instruction, operands, family, match)
    if match := _WMMA.fullmatch(instruction.name):
        return _decode_wmma(instruction, operands, family, match)
    raise NotRunError(instruction.text)


def _decode_mfma(instruction: Instruction, operands: list[Operand], family: Family, match: re.Match[str]) -> Run:
    result, kind = match[1], match[5]
    rows, columns, depth = (int(match[part]) for part in (2, 3, 4))
    if rows != columns or rows not in (16, 32):
        raise NotRunError(instruction.text)
    groups = 64 // rows
    each = depth // groups  # elements along the depth that a lane has
    if each * groups != depth or not operands[1].count * 4 == operands[2].count * 4 == each * _SIZES[kind]:
        raise NotRunError(instruction.text)  # several blocks
    register, lane = np.arange(rows * rows // 64)[:, None], np.arange(64)
    row = 8 * (register // 4) + 4 * (lane // 32) + register % 4 if rows == 32 else 4 * (lane // 16) + register
    flush = family.matrix_flushes and kind in ("f16", "bf16")

    def matrix(w: Wave, operand: Operand) -> Array:
        parts = _elements(w, operand, kind, flush=flush).reshape(groups, rows, each)
        whole: Array = parts.transpose(1, 0, 2).reshape(rows, depth)
        return whole

    def run(w: Wave) -> None:
        product = matrix(w, operands[1]) @ matrix(w, operands[2]).T
        total = product[row, lane % rows] + _addend(w, operands[3], len(register), result)
        _write(w, operands[0], total, result)

    return run


def _decode_wmma(instruction: Instruction, operands: list[Operand], family: Family, match: re.Match[str]) -> Run:
    kind = match[1]
    copied = family.generation == 11  # lanes 16 to 31 repeat lanes 0 to 15
    if not operands[1].count == operands[2].count == (8 if copied else 4):
        raise NotRunError(instruction.text)
    register, lane = np.arange(8)[:, None], np.arange(32)
    row = 2 * register + lane // 16 if copied else 8 * (lane // 16) + register

    def matrix(w: Wave, operand: Operand) -> Array:
        parts = _elements(w, operand, kind, flush=False)
        return parts[:16] if copied else np.concatenate([parts[:16], parts[16:]], axis=1)

    def run(w: Wave) -> None:
        product = matrix(w, operands[1]) @ matrix(w, operands[2]).T
        _write(w, operands[0], product[row, lane % 16] + _addend(w, operands[3], 8, "f32"), "f32")

    return run


def _elements(w: Wave, operand: Operand, kind: str, *, flush: bool) -> Array:
    """Return the elements of an operand as float64 of shape (lanes, elements of a lane)."""
    bits = np.ascontiguousarray(w.registers[operand.index : operand.index + operand.count].T)
    if kind == "i8":
        return bits.view(np.int8).astype(np.float64)  # 53 bits hold every sum
    if kind == "f32":
        return bits.view(np.float32).astype(np.float64)
    halves = bits.view(np.uint16)
    if kind == "bf16":
        values = (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        values = halves.view(np.float16).astype(np.float32)
    if flush:
        tiny = np.finfo(np.float16 if kind == "f16" else np.float32).tiny
        values = np.where(np.abs(values) < tiny, np.float32(0), values)
    numbers: Array = values.astype(np.float64)
    return numbers


def _addend(w: Wave, operand: Operand, count: int, result: str) -> Any:
    form = np.float32 if result == "f32" else np.int32
    if operand.kind == "v":
        return w.registers[operand.index : operand.index + count].view(form).astype(np.float64)
    if operand.kind != "constant":
        raise NotRunError("a matrix in scalar registers")
    return np.uint32(constant_bits(operand.constant, 4)).view(form)


def _write(w: Wave, operand: Operand, total: Array, result: str) -> None:
    values = total.astype(np.float32) if result == "f32" else total.astype(np.int64).astype(np.int32)
    w.registers[operand.index : operand.index + len(values)] = values.view(np.uint32)
