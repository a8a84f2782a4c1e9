"""What vector instructions compute: numpy functions of values for each lane, or of one value for all lanes.

Instructions for pairs of numbers (``v_pk_*``, ``v_dot2*``) get arrays of shape (2, lanes), the low number first.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import numpy as np

from wheelfactory.emulator import bits
from wheelfactory.emulator.rounding import (
    COMPARISONS,
    classify,
    div_fixup,
    div_fixup_double,
    div_fmas,
    div_scale,
    div_scale_double,
    dot,
    fused,
    fused_double,
    multiply_then_add,
    to_bfloat16,
    to_half_towards_zero,
    to_integer,
)
from wheelfactory.emulator.table import TABLE, U32, U64, define, define_sizes, flush_denormals

_MAX = 0xFFFFFFFF
_PLACES, _HALF, _LOW = U32(31), U32(16), U32(0xFFFF)

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "subrev": lambda a, b: b - a,
}
_LOGIC: dict[str, Callable[..., Any]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "xnor": lambda a, b: ~(a ^ b),
}
_FLOATS: dict[str, Callable[..., Any]] = {**_ARITHMETIC, "mul": lambda a, b: a * b, "max": np.fmax, "min": np.fmin}
_INTEGERS: dict[str, Callable[..., Any]] = {
    **_ARITHMETIC,
    "mul_lo": lambda a, b: a * b,
    "max": np.maximum,
    "min": np.minimum,
}

# floats

define_sizes("f# f# > f#", "v_*_f#", 16, 32, 64, **_FLOATS)
define_sizes("f# f# f# > f#", "v_*_f#", 16, 32, fma=fused, fmamk=fused, fmaak=fused)
define_sizes("f# f# old > f#", "v_*_f#", 16, 32, fmac=fused)
define_sizes("f#x2 f#x2 > f#x2", "v_pk_*_f#", 16, 32, **_FLOATS)
define_sizes("f#x2 f#x2 f#x2 > f#x2", "v_pk_*_f#", 16, 32, fma=fused)
define("f32 f32 > f32", v_mul_legacy_f32=lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b))
define(
    "f32 f32 f32 > f32",
    v_mad_f32=multiply_then_add,
    v_madmk_f32=multiply_then_add,
    v_madak_f32=multiply_then_add,
    v_max3_f32=lambda a, b, c: np.fmax(np.fmax(a, b), c),
    v_min3_f32=lambda a, b, c: np.fmin(np.fmin(a, b), c),
    v_maxmin_f32=lambda a, b, c: np.fmin(np.fmax(a, b), c),
    v_minmax_f32=lambda a, b, c: np.fmax(np.fmin(a, b), c),
    v_med3_f32=lambda a, b, c: np.fmax(np.fmin(a, b), np.fmin(np.fmax(a, b), c)),
    v_div_fixup_f32=div_fixup,
)
define("f32 f32 old > f32", v_mac_f32=multiply_then_add)
define("f32 f32 f32 > f32 mask", v_div_scale_f32=div_scale)
define("f32 f32 f32 vcc > f32", v_div_fmas_f32=div_fmas)
define("f64 f64 f64 > f64", v_fma_f64=fused_double, v_div_fixup_f64=div_fixup_double)
define("f64 f64 f64 > f64 mask", v_div_scale_f64=div_scale_double)
define("f64 f64 f64 vcc > f64", v_div_fmas_f64=lambda a, b, c, _: fused_double(a, b, c))  # nothing is scaled
define("f64 f64 old > f64", v_fmac_f64=fused_double)
define("f64 > f64", v_rcp_f64=lambda a: 1 / a)
define("mix mix mix > f32", v_fma_mix_f32=lambda a, b, c: fused(np.float32(a), np.float32(b), np.float32(c)))
define(
    "mix mix mix > f16", v_fma_mixlo_f16=TABLE["v_fma_mix_f32"].compute, v_fma_mixhi_f16=TABLE["v_fma_mix_f32"].compute
)
define("f16x2 f16x2 f32 > f32", v_dot2_f32_f16=dot)
define("f16x2 f16x2 old > f32", v_dot2acc_f32_f16=dot, v_dot2c_f32_f16=dot)


def _approximate(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of float32 that flushes denormals, as these instructions do in every mode."""
    return lambda a: flush_denormals(compute(flush_denormals(a).astype(np.float64)).astype(np.float32))


define(
    "f32 > f32",
    v_exp_f32=_approximate(np.exp2),
    v_log_f32=_approximate(np.log2),
    v_rcp_f32=_approximate(np.reciprocal),
    v_rcp_iflag_f32=_approximate(np.reciprocal),
    v_rsq_f32=_approximate(lambda a: 1 / np.sqrt(a)),
    v_sqrt_f32=_approximate(np.sqrt),
    v_sin_f32=_approximate(lambda a: np.sin(a * (2 * np.pi))),
    v_cos_f32=_approximate(lambda a: np.cos(a * (2 * np.pi))),
    v_floor_f32=np.floor,
    v_ceil_f32=np.ceil,
    v_trunc_f32=np.trunc,
    v_rndne_f32=np.rint,
    v_fract_f32=lambda a: np.minimum(a - np.floor(a), np.float32(1 - 2**-24)),
    v_frexp_mant_f32=lambda a: np.frexp(a)[0],
)
define("f32 > i32", v_frexp_exp_i32_f32=lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0))
define("f32 i32 > f32", v_ldexp_f32=lambda a, b: np.ldexp(a.astype(np.float64), np.clip(b, -512, 512)))

# conversions

_CONVERSIONS = {
    "f16": (np.float16, ("f32", "u16", "i16")),
    "f32": (np.float32, ("f16", "f64", "u32", "i32")),
    "f64": (np.float64, ("f32", "u32", "i32")),
}
for _target, (_type, _kinds) in _CONVERSIONS.items():
    for _kind in _kinds:
        define(f"{_kind} > {_target}", **{f"v_cvt_{_target}_{_kind}": methodcaller("astype", _type)})
define_sizes("f# > u32", "v_*_u32_f#", 32, 64, cvt=lambda a: to_integer(a, 0, _MAX))
define_sizes("f# > i32", "v_*_i32_f#", 32, 64, cvt=lambda a: to_integer(a, -(1 << 31), (1 << 31) - 1))
define(
    "u32 > f32",
    v_cvt_f32_ubyte0=lambda a: (a & U32(255)).astype(np.float32),
    v_cvt_f32_ubyte1=lambda a: (a >> U32(8) & U32(255)).astype(np.float32),
    v_cvt_f32_ubyte2=lambda a: (a >> U32(16) & U32(255)).astype(np.float32),
    v_cvt_f32_ubyte3=lambda a: (a >> U32(24)).astype(np.float32),
)
define(
    "f32 f32 > u32",
    v_cvt_pkrtz_f16_f32=lambda a, b: bits.pack(to_half_towards_zero(a), to_half_towards_zero(b)),
    v_cvt_pk_f16_f32=lambda a, b: bits.pack(a.astype(np.float16), b.astype(np.float16)),
    v_cvt_pk_bf16_f32=lambda a, b: to_bfloat16(a) | to_bfloat16(b) << _HALF,
)
define("f16 f16 > u32", v_pack_b32_f16=bits.pack)

# moves and selections

define(
    "b32 > b32",
    v_mov_b32=lambda a: a,
    v_accvgpr_read_b32=lambda a: a,
    v_accvgpr_write_b32=lambda a: a,
    v_accvgpr_mov_b32=lambda a: a,
)
define_sizes("u# > u#", "v_*_b#", 16, 64, mov=lambda a: a)
# op_sel selects the numbers: from the first operand for the low result, from the second for the high one
define("f32x2 f32x2 > f32x2", v_pk_mov_b32=lambda a, b: np.stack([a[0], b[0]]))
define("b32 b32 mask > b32", v_cndmask_b32=lambda a, b, lanes: np.where(lanes, b, a))
define("u16 u16 mask > u16", v_cndmask_b16=lambda a, b, lanes: np.where(lanes, b, a))

# integers

define_sizes("u# u# > u#", "v_*_u#", 16, 32, **_INTEGERS)
define_sizes("u# u# > u#", "v_*_b#", 16, 32, **_LOGIC, lshlrev=bits.shift_left, lshrrev=bits.shift_right)
define_sizes("i# i# > i#", "v_*_i#", 16, 32, max=np.maximum, min=np.minimum)
define_sizes("u# i# > i#", "v_*_i#", 16, 32, ashrrev=bits.shift_right)
define("u16 > u16", v_not_b16=lambda a: ~a)
define(
    "u32 > u32",
    v_not_b32=lambda a: ~a,
    v_bfrev_b32=bits.reverse,
    v_ffbl_b32=bits.lowest_one,
    v_ffbh_u32=bits.leading_zeros,
)
define(
    "u32 u32 > u32",
    v_add_i32=lambda a, b: a + b,
    v_sub_i32=lambda a, b: a - b,
    v_mul_hi_u32=lambda a, b: a.astype(U64) * b.astype(U64) >> U64(32),
    v_mul_u32_u24=bits.multiply_unsigned_24,
    v_bfm_b32=lambda a, b: (U32(1) << (a & _PLACES)) - U32(1) << (b & _PLACES),
    v_bcnt_u32_b32=lambda a, b: bits.count_ones(a) + b,
)
define(
    "u32 u32 lanes > u32",
    v_mbcnt_lo_u32_b32=lambda a, b, lanes: bits.count_below(a, 0, lanes.size) + b,
    v_mbcnt_hi_u32_b32=lambda a, b, lanes: bits.count_below(a, 32, lanes.size) + b,
)
define(
    "i32 i32 > i32",
    v_mul_hi_i32=lambda a, b: a.astype(np.int64) * b >> 32,
    v_mul_i32_i24=lambda a, b: bits.signed_24(a) * bits.signed_24(b),
)
define(
    "u32 u32 u32 > u32",
    v_add3_u32=lambda a, b, c: a + b + c,
    v_sad_u32=lambda a, b, c: bits.distance(a, b) + c,
    v_or3_b32=lambda a, b, c: a | b | c,
    v_xor3_b32=lambda a, b, c: a ^ b ^ c,
    v_and_or_b32=lambda a, b, c: a & b | c,
    v_xad_u32=lambda a, b, c: (a ^ b) + c,
    v_lshl_add_u32=lambda a, b, c: (a << (b & _PLACES)) + c,
    v_add_lshl_u32=lambda a, b, c: a + b << (c & _PLACES),
    v_lshl_or_b32=lambda a, b, c: a << (b & _PLACES) | c,
    v_sad_u16=lambda a, b, c: bits.distance(a & _LOW, b & _LOW) + bits.distance(a >> _HALF, b >> _HALF) + c,
    v_mad_u32_u24=lambda a, b, c: bits.multiply_unsigned_24(a, b) + c,
    v_max3_u32=lambda a, b, c: np.maximum(np.maximum(a, b), c),
    v_min3_u32=lambda a, b, c: np.minimum(np.minimum(a, b), c),
    v_bfe_u32=bits.extract,
    v_bfi_b32=lambda a, b, c: a & b | ~a & c,
    v_alignbit_b32=lambda a, b, c: bits.shift_pair_right(a, b, c & _PLACES),
    v_alignbyte_b32=lambda a, b, c: bits.shift_pair_right(a, b, (c & U32(3)) * U32(8)),
    v_perm_b32=bits.permute_bytes,
)
define(
    "i32 i32 i32 > i32",
    v_max3_i32=lambda a, b, c: np.maximum(np.maximum(a, b), c),
    v_min3_i32=lambda a, b, c: np.minimum(np.minimum(a, b), c),
    v_med3_i32=lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)),
    v_mad_i32_i24=lambda a, b, c: bits.signed_24(a) * bits.signed_24(b) + c,
)
define("u32 u32 u32 > i32", v_bfe_i32=bits.extract_signed)
define("u32 u32 > u32 mask", v_add_co_u32=bits.add_carry, v_sub_co_u32=bits.subtract_borrow)
define("u32 u32 > u32 mask", v_subrev_co_u32=lambda a, b: bits.subtract_borrow(b, a))
define("u32 u32 mask > u32 mask", v_addc_co_u32=bits.add_carry, v_subb_co_u32=bits.subtract_borrow)
define("u32 u32 mask > u32 mask", v_subbrev_co_u32=lambda a, b, borrow: bits.subtract_borrow(b, a, borrow))
define("u32 u32 u64 > u64 mask", v_mad_u64_u32=bits.multiply_add)
define("i32 i32 i64 > i64 mask", v_mad_i64_i32=bits.multiply_add_signed)
define("u64 u32 u64 > u64", v_lshl_add_u64=lambda a, b, c: (a << (b & U32(7)).astype(U64)) + c)
define("u64 u64 > u64", v_add_nc_u64=lambda a, b: a + b, v_sub_nc_u64=lambda a, b: a - b)
define("u32 u64 > u64", v_lshlrev_b64=bits.shift_left, v_lshrrev_b64=bits.shift_right)
define("u32 i64 > i64", v_ashrrev_i64=bits.shift_right)
define_sizes("u#x2 u#x2 > u#x2", "v_pk_*_u#", 16, **_INTEGERS)
define_sizes("u#x2 u#x2 > u#x2", "v_pk_*_b#", 16, lshlrev=bits.shift_left, lshrrev=bits.shift_right)
define("u16x2 u16x2 u16x2 > u16x2", v_pk_mad_u16=lambda a, b, c: a * b + c)
define("i16x2 i16x2 > i16x2", v_pk_max_i16=np.maximum, v_pk_min_i16=np.minimum)

for _name, _compare in COMPARISONS.items():
    for _kind in ("f16", "f32", "f64", "i16", "i32", "i64", "u16", "u32", "u64"):
        define(f"{_kind} {_kind} > mask", **{f"v_cmp_{_name}_{_kind}": _compare})
        define(f"{_kind} {_kind} > lanes", **{f"v_cmpx_{_name}_{_kind}": _compare})
define_sizes("f# u32 > mask", "v_*_f#", 16, 32, cmp_class=classify)

SATURATING: dict[str, Callable[..., Any]] = {
    "v_add_u32": lambda a, b: np.minimum(a.astype(np.int64) + b, _MAX),
    "v_sub_u32": lambda a, b: np.maximum(a.astype(np.int64) - b, 0),
    "v_subrev_u32": lambda a, b: np.maximum(b.astype(np.int64) - a, 0),
    "v_add_i32": lambda a, b: bits.saturate(a.view(np.int32).astype(np.int64) + b.view(np.int32)),
    "v_sub_i32": lambda a, b: bits.saturate(a.view(np.int32).astype(np.int64) - b.view(np.int32)),
}
"""What integer instructions compute with the modifier ``clamp``."""
