"""Arithmetic that numpy does not have: fused multiply-add, dot products, saturating conversions, comparisons with NaN.

Approximate instructions (exp, log, rcp, rsq, sqrt, sin, cos) are computed in float64 and rounded once. The ISA allows
an error of 1 ulp for float32, so a GPU may differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from wheelfactory.emulator.memory import Array
from wheelfactory.emulator.table import flush_denormals

_TIE = np.int64((1 << 28) - 1)
"""The bits of a float64 that are 0 if it lies between two float32, or two float16."""


def fused(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c with one rounding, in the type of the inputs: float16 or float32."""
    return fused_wide(a, b, c).astype(a.dtype)


def fused_wide(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c as float64 that rounds to the right float16 or float32."""
    product = np.multiply(a, b, dtype=np.float64)  # exact
    total = product + c
    if np.count_nonzero(total.view(np.int64) & _TIE) < total.size:
        total = _rounded_to_odd(product, c.astype(np.float64), total)
    return total


def _rounded_to_odd(product: Any, addend: Any, total: Any) -> Any:
    """Move a sum that was rounded towards its exact value, so that it is not taken for a tie afterwards."""
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    tie = (total.view(np.int64) & _TIE == 0) & (lost != 0) & np.isfinite(total)
    if not np.count_nonzero(tie):
        return total
    return np.where(tie, np.nextafter(total, np.where(lost > 0, np.inf, -np.inf)), total)


def fused_double(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c with one rounding, in float64."""
    plain = np.asarray(a * b + c)
    exact = np.frompyfunc(lambda x, y, z: float(Fraction(x) * Fraction(y) + Fraction(z)), 3, 1)
    finite = np.isfinite(plain)
    operands = (np.broadcast_to(each, plain.shape)[finite] for each in (a, b, c))
    found = exact(*operands).astype(np.float64)
    plain[finite] = np.where(found == 0, plain[finite], found)  # a fraction has no negative zero
    return plain


def multiply_then_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c in float32, rounded twice; these instructions of gfx9 flush denormals in every mode."""
    product = flush_denormals(flush_denormals(a) * flush_denormals(b))
    return flush_denormals(product + flush_denormals(c))


def dot(a: Any, b: Any, c: Any) -> Any:
    """Return the dot product of pairs plus `c`, rounded once; the ISA leaves the order of additions open."""
    products = np.multiply(a, b, dtype=np.float64)
    return (products[0] + products[1] + c).astype(np.float32)


def to_integer(values: Any, smallest: int, largest: int) -> Any:
    """Return floats truncated to int64, NaN as 0, and others in a range."""
    return np.clip(np.nan_to_num(np.trunc(values.astype(np.float64)), nan=0), smallest, largest).astype(np.int64)


def to_bfloat16(values: Any) -> Any:
    """Return float32 rounded to the nearest bfloat16, as uint32 with the bits below."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)
    return np.where(np.isnan(values), bits >> np.uint32(16) | np.uint32(0x40), rounded)


def to_half_towards_zero(values: Any) -> Any:
    """Return float32 rounded towards zero to float16; too large ones become the largest."""
    half = np.asarray(values).astype(np.float16)
    above = np.abs(half.astype(np.float32)) > np.abs(values)
    return np.where(above, (half.view(np.uint16) - np.uint16(1)).view(np.float16), half)


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: (a < b) | (a > b),
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "o": lambda a, b: (a == a) & (b == b),
    "u": lambda a, b: (a != a) | (b != b),
}


def _negated(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: np.logical_not(compare(a, b))


COMPARISONS |= {f"n{name}": _negated(COMPARISONS[name]) for name in ("ge", "lg", "gt", "le", "eq", "lt")}
"""Comparisons by their name in instructions; those with ``n`` in front are true if an operand is NaN."""


def classify(values: Array, wanted: Array) -> Array:
    """Return whether floats are of a class that a bit of `wanted` names, from signalling NaN to positive infinity."""
    size, negative, tiny = np.abs(values), np.signbit(values), np.finfo(values.dtype).tiny
    groups = (np.isinf(size), (size >= tiny) & ~np.isinf(size), (size < tiny) & (size > 0), size == 0)
    result: Array = np.isnan(values) & (wanted >> 1 & 1).astype(bool)  # numpy does not tell signalling NaN apart
    for position, group in enumerate(groups):
        result |= group & negative & (wanted >> (2 + position) & 1).astype(bool)
        result |= group & ~negative & (wanted >> (9 - position) & 1).astype(bool)
    return result
