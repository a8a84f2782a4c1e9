"""The three steps of a division: scale the operands, multiply and scale back, fix special values.

Float64 is divided without scaling, so operands that need it give NaN.

Sources: the pseudo code of V_DIV_SCALE_F32, V_DIV_FMAS_F32 and V_DIV_FIXUP_F32 in AMD's instruction set documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wheelfactory.emulator.rounding import fused_wide

_TINY = np.finfo(np.float32).tiny
_UP, _DOWN = np.float64(2.0**64), np.float64(2.0**-64)


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
