"""The types of numbers in registers."""

from __future__ import annotations

from typing import Any

import numpy as np

if np.lib.NumpyVersion(np.__version__) < "2.0.0":
    # numpy 1 converts by values, so that a difference of unsigned numbers cannot be negative
    raise ImportError(f"the emulator needs numpy 2 or newer; this Python has {np.__version__}")

U16, U32, U64 = np.uint16, np.uint32, np.uint64
LOW = U32(0xFFFF)
HIGH = U32(0xFFFF0000)

WIDE = {"u64": np.uint64, "i64": np.int64, "f64": np.float64}
HALVES = {"u16": np.uint16, "i16": np.int16, "f16": np.float16}
HALF_PAIRS = {"u16x2": np.uint16, "i16x2": np.int16, "f16x2": np.float16}
"""The numpy type of each kind of operand: of 64 bits, of half a register, of both halves."""


_SMALLEST_NORMAL = np.finfo(np.float32).tiny


def flush_denormals(values: Any) -> Any:
    """Return float32 with zeros of the same sign in place of denormals."""
    small = np.abs(values) < _SMALLEST_NORMAL
    return np.where(small, np.copysign(np.float32(0), values), values) if np.count_nonzero(small) else values
