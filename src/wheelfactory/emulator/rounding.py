"""Arithmetic that numpy does not have: fused multiply-add, dot products, saturating conversions, comparisons with NaN.

Approximate instructions (exp, log, rcp, rsq, sqrt, sin, cos) are computed in float64 and rounded once. The ISA allows
an error of 1 ulp for float32, so a GPU may differ in the last bit. A division takes three instructions: scale the
operands, multiply and scale back, fix special values. Float64 is divided without scaling, so operands that need it give
NaN. Sources: the pseudo code of V_DIV_SCALE_F32, V_DIV_FMAS_F32 and V_DIV_FIXUP_F32 in AMD's instruction set documents.
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
_TINY = np.finfo(np.float32).tiny
_UP, _DOWN = np.float64(2.0**64), np.float64(2.0**-64)


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


def _exponent(values: Any) -> Any:
    """Return the biased exponent."""
    return (np.abs(values).view(np.uint32) >> np.uint32(23)).astype(np.int64)


def div_scale(value: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """Return the numerator or denominator `value`, scaled if needed, and the lanes whose quotient must be scaled."""
    exponents = _exponent(denominator), _exponent(numerator)
    if all(np.count_nonzero((each < 64) | (each > 159)) == 0 for each in exponents):
        return value, np.zeros(np.broadcast(*exponents).shape, bool)  # far from every limit below
    wide = denominator.astype(np.float64)
    size, quotient = np.abs(wide), np.abs(numerator.astype(np.float64) / wide)
    near_max = exponents[1] - exponents[0] >= 96
    tiny_denominator = (size < _TINY) & (size > 0)
    tiny_inverse, tiny_quotient = size > 1 / np.float64(_TINY), (quotient < _TINY) & (quotient > 0)
    of_denominator, of_numerator = value == denominator, value == numerator
    rows = [
        ((numerator == 0) | (denominator == 0), np.nan, 0),
        (near_max, np.where(of_denominator, _UP, 1), 1),
        (tiny_denominator, _UP, 0),
        # the documents scale it up, where it would overflow: a quotient is right only if it is scaled down
        (tiny_inverse & tiny_quotient, np.where(of_denominator, _DOWN, 1), 1),
        (tiny_inverse, _DOWN, 0),
        (tiny_quotient, np.where(of_numerator, _UP, 1), 1),
        (exponents[1] <= 23, _UP, 0),
    ]
    tests, scales, flags = map(list, zip(*rows, strict=True))
    scaled = (value.astype(np.float64) * np.select(tests, scales, 1.0)).astype(np.float32)
    return scaled, np.select(tests, list(map(np.bool_, flags)), np.bool_(0))


def div_fmas(a: Any, b: Any, c: Any, scaled: Any) -> Any:
    """Return a * b + c, and take back the scaling of the numerator or denominator."""
    back = np.where(_exponent(c) > 127, _UP, _DOWN)
    return (fused_wide(a, b, c) * np.where(scaled, back, 1)).astype(np.float32)


def div_fixup(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """Return the quotient with its sign, or what IEEE 754 gives for zeros, infinities and NaN."""
    exact = numerator.astype(np.float64) / denominator.astype(np.float64)
    ordinary = np.isfinite(exact) & np.isfinite(denominator) & (exact != 0)
    size = np.where(np.isnan(quotient), np.float32(np.inf), np.abs(quotient))  # NaN: the refinement overflowed
    size = np.where(_exponent(numerator) - _exponent(denominator) < -150, np.float32(0), size)
    signed = np.copysign(size, exact)
    return np.where(ordinary, signed, exact.astype(np.float32)).astype(np.float32)


def div_scale_double(value: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """Return `value` in float64, NaN if it had to be scaled, and that no lane is scaled."""
    plain = np.bool_(1)
    for number in (denominator, numerator):
        plain = plain & (np.abs(number) > 2.0**-500) & (np.abs(number) < 2.0**500)
    return np.where(plain, value, np.nan), np.zeros(plain.shape, bool)


def div_fixup_double(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """Return a quotient in float64, or what IEEE 754 gives for zeros, infinities and NaN."""
    exact = numerator / denominator
    ordinary = np.isfinite(numerator) & np.isfinite(denominator) & (numerator != 0) & (denominator != 0)
    return np.where(ordinary, quotient, exact)
