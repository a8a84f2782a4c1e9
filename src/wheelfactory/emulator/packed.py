"""What instructions for pairs of numbers compute: arrays of shape (2, lanes), the low number first."""

from __future__ import annotations

from typing import Any

import numpy as np

from wheelfactory.emulator.rounding import fused
from wheelfactory.emulator.table import define

_SHIFT = np.uint16(15)

define("f32x2 f32x2 > f32x2", v_pk_add_f32=lambda a, b: a + b, v_pk_mul_f32=lambda a, b: a * b)
define("f32x2 f32x2 f32x2 > f32x2", v_pk_fma_f32=fused)
# op_sel alone selects: of the first operand for the low number, of the second for the high one
define("f32x2 f32x2 > f32x2", v_pk_mov_b32=lambda a, b: np.stack([a[0], b[0]]))
define(
    "f16x2 f16x2 > f16x2",
    v_pk_add_f16=lambda a, b: a + b,
    v_pk_mul_f16=lambda a, b: a * b,
    v_pk_max_f16=np.fmax,
    v_pk_min_f16=np.fmin,
)
define("f16x2 f16x2 f16x2 > f16x2", v_pk_fma_f16=fused)
define(
    "u16x2 u16x2 > u16x2",
    v_pk_add_u16=lambda a, b: a + b,
    v_pk_sub_u16=lambda a, b: a - b,
    v_pk_mul_lo_u16=lambda a, b: a * b,
    v_pk_max_u16=np.maximum,
    v_pk_min_u16=np.minimum,
    v_pk_lshlrev_b16=lambda a, b: b << (a & _SHIFT),
    v_pk_lshrrev_b16=lambda a, b: b >> (a & _SHIFT),
)
define("u16x2 u16x2 u16x2 > u16x2", v_pk_mad_u16=lambda a, b, c: a * b + c)
define("i16x2 i16x2 > i16x2", v_pk_max_i16=np.maximum, v_pk_min_i16=np.minimum)
define("f16x2 f16x2 f32 > f32", v_dot2_f32_f16=lambda a, b, c: _dot(a, b, c))
define(
    "f16x2 f16x2 old > f32",
    v_dot2acc_f32_f16=lambda a, b, c: _dot(a, b, c),
    v_dot2c_f32_f16=lambda a, b, c: _dot(a, b, c),
)


def _dot(a: Any, b: Any, c: Any) -> Any:
    """Return the dot product of pairs plus `c`, rounded once; the ISA leaves the order of additions open."""
    products = np.multiply(a, b, dtype=np.float64)
    return (products[0] + products[1] + c).astype(np.float32)
