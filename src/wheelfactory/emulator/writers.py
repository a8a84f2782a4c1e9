"""Write the results of instructions: closures over a wave, made once for each instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.operands import Operand
from wheelfactory.emulator.table import HALF_PAIRS, HALVES, HIGH, LOW, U16, U32, U64, WIDE
from wheelfactory.emulator.wave import EXEC, ROWS, Rows, Wave, to_mask

Writer: TypeAlias = Callable[[Wave, Any], None]

_HALF_BITS = U32(16)


def write_row(w: Wave, index: int, value: Any, rows: Rows = ROWS["u32"]) -> None:
    """Write 32 bits of the active lanes of a vector register."""
    row = rows(w)[index]
    if w.full:
        row[:] = value
    else:
        np.copyto(row, value, where=w.mask, casting="unsafe")


def vector_writer(operand: Operand, kind: str, *, high: bool = False, zero_high: bool = False) -> Writer:
    """Return a function that writes the active lanes of an operand; kinds are those of `vector_reader`.

    `high` writes the high half of a register, `zero_high` clears it for 16-bit results.
    """
    index = operand.index
    if kind in ("mask", "lanes"):
        return _mask_writer(operand)
    if operand.kind == "off":
        return lambda _w, _value: None
    if operand.kind != "v":
        raise NotRunError("a vector result in a scalar register")
    if kind in ("f32", "i32", "u32", "b32"):
        rows = ROWS.get(kind, ROWS["u32"])
        return lambda w, value: write_row(w, index, value, rows)
    if kind in WIDE:

        def write_wide(w: Wave, value: Any) -> None:
            bits = np.asarray(value).astype(WIDE[kind]).view(U64)
            write_row(w, index, bits.astype(U32))
            write_row(w, index + 1, (bits >> U64(32)).astype(U32))

        return write_wide
    if kind == "f32x2":

        def write_pair(w: Wave, value: Any) -> None:
            write_row(w, index, value[0].view(U32))
            write_row(w, index + 1, value[1].view(U32))

        return write_pair
    return _half_writer(operand, kind, high=bool(operand.high) or high, zero_high=zero_high and operand.high is None)


def _half_writer(operand: Operand, kind: str, *, high: bool, zero_high: bool) -> Writer:
    index = operand.index
    if kind in HALF_PAIRS:

        def write_halves(w: Wave, value: Any) -> None:
            bits = np.asarray(value, HALF_PAIRS[kind]).view(U16).astype(U32)
            write_row(w, index, bits[0] | bits[1] << _HALF_BITS)

        return write_halves
    form = HALVES[kind]

    def write(w: Wave, value: Any) -> None:
        bits = np.asarray(value).astype(form).view(U16).astype(U32)
        if high:
            write_row(w, index, w.u[index] & LOW | bits << _HALF_BITS)
        else:
            write_row(w, index, bits if zero_high else w.u[index] & HIGH | bits)

    return write


def _mask_writer(operand: Operand) -> Writer:
    if operand.kind == "off":
        return lambda _w, _value: None
    index = operand.index
    return lambda w, value: w.set_scalar_mask(index, to_mask(value & w.mask))


def scalar_writer(operand: Operand, kind: str) -> Writer:
    """Return a function that writes a scalar operand; kinds are those of `scalar_reader`."""
    index = operand.index
    if operand.kind == "off":
        return lambda _w, _value: None
    if operand.kind != "s":
        raise NotRunError("a scalar result in a vector register")

    def write(w: Wave, value: Any) -> None:
        bits = int(np.float32(value).view(U32)) if kind == "sf32" else int(value)
        w.s[index] = bits & 0xFFFFFFFF
        if kind.endswith("64"):
            w.s[index + 1] = bits >> 32 & 0xFFFFFFFF
        if index >= EXEC:
            w.set_exec(w.scalar_mask(EXEC))

    return write
