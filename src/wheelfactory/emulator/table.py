"""Kinds of numbers, and the table of what instructions compute, which the modules ``scalar`` and ``vector`` fill.

A signature names the kinds of the inputs and results, such as ``f32 f32 > f32``. In the text of an instruction the
results come first. These kinds are not in the text: ``scc``, ``exec`` (an integer), ``lanes`` (EXEC as booleans),
``vcc`` (booleans), and ``old``, the value that the result has before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

if np.lib.NumpyVersion(np.__version__) < "2.0.0":
    # numpy 1 chooses types by values, so a difference of unsigned numbers would not wrap around
    raise ImportError(f"the emulator needs numpy 2 or newer; this Python has {np.__version__}")

U16, U32, U64 = np.uint16, np.uint32, np.uint64
LOW = U32(0xFFFF)
HIGH = U32(0xFFFF0000)

WIDE = {"u64": np.uint64, "i64": np.int64, "f64": np.float64}
HALVES = {"u16": np.uint16, "i16": np.int16, "f16": np.float16}
HALF_PAIRS = {"u16x2": np.uint16, "i16x2": np.int16, "f16x2": np.float16}
"""numpy types of the kinds of operands: 64 bits (`WIDE`), half a register (`HALVES`), both halves (`HALF_PAIRS`)."""

IMPLICIT = ("scc", "exec", "lanes", "vcc", "old")


@dataclass(frozen=True)
class Semantics:
    """What an instruction computes: a function of its inputs that returns its result, or a tuple of results."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]
    compute: Callable[..., Any]


TABLE: dict[str, Semantics] = {}
"""Instructions by their name on gfx9."""


def define(signature: str, **functions: Callable[..., Any]) -> None:
    """Add instructions to the table, by name."""
    inputs, _, results = signature.partition(">")
    for name, compute in functions.items():
        TABLE[name] = Semantics(tuple(inputs.split()), tuple(results.split()), compute)


def define_sizes(signature: str, name: str, *sizes: int, **functions: Callable[..., Any]) -> None:
    """Add instructions that compute the same for numbers of several sizes.

    In the signature and the name ``#`` stands for the bits of a number; in the name ``*`` stands for the function:
    with ``v_*_f#`` and 16, `add` is ``v_add_f16``.
    """
    for size in map(str, sizes):
        named = {name.replace("*", function).replace("#", size): compute for function, compute in functions.items()}
        define(signature.replace("#", size), **named)


_SMALLEST_NORMAL = np.finfo(np.float32).tiny


def flush_denormals(values: Any) -> Any:
    """Return float32 with zeros of the same sign in place of denormals."""
    small = np.abs(values) < _SMALLEST_NORMAL
    return np.where(small, np.copysign(np.float32(0), values), values) if np.count_nonzero(small) else values
