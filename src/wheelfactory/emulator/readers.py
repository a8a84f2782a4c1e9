"""Read the operands of instructions: closures over a wave, made once for each instruction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array
from wheelfactory.emulator.operands import Operand, constant_bits, to_signed
from wheelfactory.emulator.table import HALF_PAIRS, HALVES, U16, U32, U64, WIDE, flush_denormals
from wheelfactory.emulator.wave import ROWS, Wave, to_lanes

Reader: TypeAlias = Callable[[Wave], Any]

_HALF_BITS = U32(16)
_SIGNED = frozenset({"f16", "f32", "f64", "b32", "mix"})
"""Kinds whose operands may have the modifiers ``|x|`` and ``-x``."""


@dataclass(frozen=True)
class Source:
    """How an operand is read beyond its text; `transform` changes the raw 32 bits, `selected` are two halves."""

    transform: Callable[[Wave, Any], Any] | None = None
    high: bool = False
    mixed: bool = False
    """Whether an operand of type ``mix`` has 16 bits."""
    selected: tuple[int, int] = (0, 1)
    """Which part of a pair makes the low and the high result."""
    negated: tuple[int, int] = (0, 0)
    flush: bool = False
    """Whether float32 may have to flush denormals."""


def vector_reader(operand: Operand, kind: str, source: Source) -> Reader:
    """Return a function that reads an operand for each lane: an array of shape (lanes,) or one value for all.

    Kinds are u32, i32, f32 and b32 (bits with float modifiers), those with 16 and 64 bits, pairs such as f16x2 and
    f32x2 with shape (2, lanes), ``mix`` (float32 or float16), and ``mask`` (booleans). Raises `NotRunError`.
    """
    _require_modelled(operand, kind)
    if kind == "mask":
        return _mask_reader(operand)
    if kind == "mix":  # a float32 operation: the mode of float32 is that of its operands of 32 bits alone
        kind = "f16" if source.mixed else "f32"
    if kind in WIDE:
        return _signed_as(operand, _wide_reader(operand, kind))
    if kind == "f32x2":
        return _float_pair_reader(operand, source)
    size = 2 if kind in HALVES or kind in HALF_PAIRS else 4
    raw = _raw_reader(operand, size)
    if source.transform:
        raw, inner, transform = (lambda w: transform(w, inner(w))), raw, source.transform
    if kind in HALF_PAIRS:
        return _half_pair_reader(raw, HALF_PAIRS[kind], source)
    if kind in HALVES:
        return _signed_as(operand, _half_reader(raw, HALVES[kind], high=bool(operand.high) or source.high))
    if kind == "b32":
        return _bits_reader(operand, raw)
    return _signed_as(operand, _word_reader(operand, raw, kind, source))


def _require_modelled(operand: Operand, kind: str) -> None:
    if (operand.negative or operand.absolute) and kind not in _SIGNED:
        raise NotRunError(f"a sign of an operand of kind {kind}")
    if operand.kind in ("v", "s") and kind != "mask" and operand.count != (2 if kind in WIDE or kind == "f32x2" else 1):
        raise NotRunError(f"{operand.count} registers for {kind}")


def _raw_reader(operand: Operand, size: int, part: int = 0) -> Reader:
    """Return a reader of 32 bits as uint32."""
    index = operand.index + part
    if operand.kind == "v":
        return lambda w: w.u[index]
    if operand.kind == "s":
        return lambda w: U32(w.s[index])
    if operand.kind == "scc":
        return lambda w: U32(w.scc)
    if operand.kind == "off":
        return lambda _: U32(0)
    bits = U32(constant_bits(operand.constant, size) & 0xFFFFFFFF)
    return lambda _: bits


def _word_reader(operand: Operand, raw: Reader, kind: str, source: Source) -> Reader:
    if kind == "f32" and source.flush:
        return lambda w: flush_denormals(raw(w).view(np.float32)) if not w.denormals & 1 else raw(w).view(np.float32)
    if operand.kind == "v" and not source.transform:
        index, rows_of = operand.index, ROWS[kind]
        return lambda w: rows_of(w)[index]
    form = {"u32": np.uint32, "i32": np.int32, "f32": np.float32}[kind]
    if operand.kind == "constant" and not source.transform:
        constant = raw(None).view(form)  # type: ignore[arg-type]  # a constant needs no wave
        return lambda _: constant
    if kind == "u32":
        return raw
    return lambda w: raw(w).view(form)


def _signed_as(operand: Operand, read: Reader) -> Reader:
    """Apply the modifiers ``|x|`` and ``-x``."""
    if operand.absolute and operand.negative:
        return lambda w: -np.abs(read(w))
    if operand.absolute:
        return lambda w: np.abs(read(w))
    return (lambda w: -read(w)) if operand.negative else read


def _bits_reader(operand: Operand, raw: Reader) -> Reader:
    clear = U32(0x7FFFFFFF if operand.absolute else 0xFFFFFFFF)
    flip = U32(0x80000000 if operand.negative else 0)
    return (lambda w: (raw(w) & clear) ^ flip) if operand.absolute or operand.negative else raw


def _half_reader(raw: Reader, form: Any, *, high: bool) -> Reader:
    if high:
        return lambda w: (raw(w) >> _HALF_BITS).astype(U16).view(form)
    return lambda w: raw(w).astype(U16).view(form)


def _half_pair_reader(raw: Reader, form: Any, source: Source) -> Reader:
    shifts = U32(16) * np.array(source.selected, U32)[:, None]
    flips = np.uint16(0x8000) * np.array(source.negated, U16)[:, None]
    return lambda w: ((raw(w) >> shifts).astype(U16) ^ flips).view(form)


def _float_pair_reader(operand: Operand, source: Source) -> Reader:
    parts = [part if operand.count > 1 else 0 for part in source.selected]
    low, high = (_raw_reader(operand, 4, part) for part in parts)
    flips = U32(0x80000000) * np.array(source.negated, U32)[:, None]

    def read(w: Wave) -> Array:
        both: Array = np.empty((2, w.size), U32)
        both[0], both[1] = low(w), high(w)
        pair: Array = (both ^ flips).view(np.float32)
        return flush_denormals(pair) if source.flush and not w.denormals & 1 else pair

    return read


def _wide_reader(operand: Operand, kind: str) -> Reader:
    form = WIDE[kind]
    if operand.kind == "constant":
        value = operand.constant
        if kind == "f64" and isinstance(value, int) and not -17 < value < 65:
            value <<= 32  # a literal is the high half
        constant = U64(constant_bits(value, 8)).view(form)
        return lambda _: constant
    low, high = _raw_reader(operand, 4), _raw_reader(operand, 4, 1)
    return lambda w: (low(w).astype(U64) | high(w).astype(U64) << U64(32)).view(form)


def _mask_reader(operand: Operand) -> Reader:
    if operand.kind == "s":
        return lambda w: to_lanes(w.scalar_mask(operand.index), w.size)
    if operand.kind == "constant" and isinstance(operand.constant, int):
        constant = operand.constant
        return lambda w: to_lanes(constant & (1 << w.size) - 1, w.size)
    raise NotRunError(f"a mask of lanes in {operand.kind}")


def scalar_reader(operand: Operand, kind: str, *, flush: bool = False) -> Reader:
    """Return a function that reads a scalar operand: Python integers, or numpy floats for sf32.

    Kinds are su32, si32, su64, si64, sf32, and sk16 and uk16 for constants of 16 bits. Raises `NotRunError`.
    """
    if kind in ("sk16", "uk16"):
        value = int(operand.constant) & 0xFFFF
        number = value - (1 << 16) if kind == "sk16" and value >> 15 else value
        return lambda _: number
    bits = int(kind[2:])
    read = _scalar_bits(operand, bits // 8)
    if kind == "sf32":
        return _signed_as(operand, _word_reader(operand, lambda w: U32(read(w)), "f32", Source(flush=flush)))
    if operand.negative or operand.absolute:
        raise NotRunError("a modifier of a scalar integer")
    if kind.startswith("si"):
        return lambda w: to_signed(read(w), bits)
    return read


def _scalar_bits(operand: Operand, size: int) -> Callable[[Wave], int]:
    index = operand.index
    if operand.kind == "s" and size == 8:
        return lambda w: w.s[index] | w.s[index + 1] << 32
    if operand.kind == "s":
        return lambda w: w.s[index]
    if operand.kind == "scc":
        return lambda w: w.scc
    if operand.kind in ("constant", "off"):
        constant = constant_bits(operand.constant, size)
        return lambda _: constant
    raise NotRunError("a vector register as a scalar operand")
