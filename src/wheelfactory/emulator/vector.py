"""What vector instructions compute: numpy functions of values for each lane, or of one value for all lanes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from wheelfactory.emulator.division import div_fixup, div_fixup_double, div_fmas, div_scale, div_scale_double
from wheelfactory.emulator.numbers import U32, U64, flush_denormals
from wheelfactory.emulator.rounding import (
    COMPARISONS,
    classify,
    fused,
    fused_double,
    to_bfloat16,
    to_half_towards_zero,
    to_integer,
)
from wheelfactory.emulator.table import TABLE, define

_ONES, _MAX = U32(31), 0xFFFFFFFF
_HALF, _LOW = U32(16), U32(0xFFFF)


def _distance(a: Any, b: Any) -> Any:
    """Return the difference of unsigned numbers without its sign."""
    return np.maximum(a, b) - np.minimum(a, b)


def _approximate(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of float32 that flushes denormals, as these instructions do in every mode."""
    return lambda a: flush_denormals(compute(flush_denormals(a).astype(np.float64)).astype(np.float32))


define(
    "f32 f32 > f32",
    v_add_f32=lambda a, b: a + b,
    v_sub_f32=lambda a, b: a - b,
    v_subrev_f32=lambda a, b: b - a,
    v_mul_f32=lambda a, b: a * b,
    v_max_f32=np.fmax,
    v_min_f32=np.fmin,
    v_mul_legacy_f32=lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b),
)
define(
    "f32 f32 f32 > f32",
    v_fma_f32=fused,
    v_fmamk_f32=fused,
    v_fmaak_f32=fused,
    v_max3_f32=lambda a, b, c: np.fmax(np.fmax(a, b), c),
    v_min3_f32=lambda a, b, c: np.fmin(np.fmin(a, b), c),
    v_maxmin_f32=lambda a, b, c: np.fmin(np.fmax(a, b), c),
    v_minmax_f32=lambda a, b, c: np.fmax(np.fmin(a, b), c),
    v_med3_f32=lambda a, b, c: np.fmax(np.fmin(a, b), np.fmin(np.fmax(a, b), c)),
    v_div_fixup_f32=div_fixup,
)
define("f32 f32 old > f32", v_fmac_f32=fused)
define(
    "f32 f32 f32 > f32",
    v_mad_f32=lambda a, b, c: _multiply_then_add(a, b, c),
    v_madmk_f32=lambda a, b, c: _multiply_then_add(a, b, c),
    v_madak_f32=lambda a, b, c: _multiply_then_add(a, b, c),
)
define("f32 f32 old > f32", v_mac_f32=lambda a, b, c: _multiply_then_add(a, b, c))
define("f32 f32 f32 > f32 mask", v_div_scale_f32=div_scale)
define("f32 f32 f32 vcc > f32", v_div_fmas_f32=div_fmas)
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
define(
    "f16 f16 > f16",
    v_add_f16=lambda a, b: a + b,
    v_sub_f16=lambda a, b: a - b,
    v_subrev_f16=lambda a, b: b - a,
    v_mul_f16=lambda a, b: a * b,
    v_max_f16=np.fmax,
    v_min_f16=np.fmin,
)
define("f16 f16 f16 > f16", v_fma_f16=fused, v_fmamk_f16=fused, v_fmaak_f16=fused)
define("f16 f16 old > f16", v_fmac_f16=fused)
define("f64 f64 > f64", v_add_f64=lambda a, b: a + b, v_mul_f64=lambda a, b: a * b)
define("f64 f64 f64 > f64", v_fma_f64=fused_double, v_div_fixup_f64=div_fixup_double)
define("f64 f64 f64 > f64 mask", v_div_scale_f64=div_scale_double)
define("f64 f64 f64 vcc > f64", v_div_fmas_f64=lambda a, b, c, _: fused_double(a, b, c))  # nothing is scaled
define("f64 > f64", v_rcp_f64=lambda a: 1 / a)
define("f64 f64 old > f64", v_fmac_f64=fused_double)
define("f64 f64 > f64", v_max_f64=np.fmax, v_min_f64=np.fmin)
define("mix mix mix > f32", v_fma_mix_f32=lambda a, b, c: fused(np.float32(a), np.float32(b), np.float32(c)))
define("mix mix mix > f16", v_fma_mixlo_f16=lambda a, b, c: fused(np.float32(a), np.float32(b), np.float32(c)))
TABLE["v_fma_mixhi_f16"] = TABLE["v_fma_mixlo_f16"]

define("f16 > f32", v_cvt_f32_f16=lambda a: a.astype(np.float32))
define("f32 > f16", v_cvt_f16_f32=lambda a: a.astype(np.float16))
define("f32 > f64", v_cvt_f64_f32=lambda a: a.astype(np.float64))
define("f64 > f32", v_cvt_f32_f64=lambda a: a.astype(np.float32))
define("u32 > f32", v_cvt_f32_u32=lambda a: a.astype(np.float32))
define("i32 > f32", v_cvt_f32_i32=lambda a: a.astype(np.float32))
define("i32 > f64", v_cvt_f64_i32=lambda a: a.astype(np.float64))
define("u32 > f64", v_cvt_f64_u32=lambda a: a.astype(np.float64))
define("u16 > f16", v_cvt_f16_u16=lambda a: a.astype(np.float16))
define("i16 > f16", v_cvt_f16_i16=lambda a: a.astype(np.float16))
define("f32 > u32", v_cvt_u32_f32=lambda a: to_integer(a, 0, _MAX))
define("f32 > i32", v_cvt_i32_f32=lambda a: to_integer(a, -(1 << 31), (1 << 31) - 1))
define("f64 > u32", v_cvt_u32_f64=lambda a: to_integer(a, 0, _MAX))
define("f64 > i32", v_cvt_i32_f64=lambda a: to_integer(a, -(1 << 31), (1 << 31) - 1))
define(
    "u32 > f32",
    v_cvt_f32_ubyte0=lambda a: (a & U32(255)).astype(np.float32),
    v_cvt_f32_ubyte1=lambda a: (a >> U32(8) & U32(255)).astype(np.float32),
    v_cvt_f32_ubyte2=lambda a: (a >> U32(16) & U32(255)).astype(np.float32),
    v_cvt_f32_ubyte3=lambda a: (a >> U32(24)).astype(np.float32),
)
define(
    "f32 f32 > u32",
    v_cvt_pkrtz_f16_f32=lambda a, b: _pack(to_half_towards_zero(a), to_half_towards_zero(b)),
    v_cvt_pk_f16_f32=lambda a, b: _pack(a.astype(np.float16), b.astype(np.float16)),
    v_cvt_pk_bf16_f32=lambda a, b: to_bfloat16(a) | to_bfloat16(b) << _HALF,
)
define("f16 f16 > u32", v_pack_b32_f16=lambda a, b: _pack(a, b))

define(
    "b32 > b32",
    v_mov_b32=lambda a: a,
    v_accvgpr_read_b32=lambda a: a,
    v_accvgpr_write_b32=lambda a: a,
    v_accvgpr_mov_b32=lambda a: a,
)
define("u64 > u64", v_mov_b64=lambda a: a)
define("u16 > u16", v_mov_b16=lambda a: a)
define("b32 b32 mask > b32", v_cndmask_b32=lambda a, b, lanes: np.where(lanes, b, a))
define("u16 u16 mask > u16", v_cndmask_b16=lambda a, b, lanes: np.where(lanes, b, a))
define(
    "u32 u32 > u32",
    v_and_b32=lambda a, b: a & b,
    v_or_b32=lambda a, b: a | b,
    v_xor_b32=lambda a, b: a ^ b,
    v_xnor_b32=lambda a, b: ~(a ^ b),
    v_add_u32=lambda a, b: a + b,
    v_sub_u32=lambda a, b: a - b,
    v_subrev_u32=lambda a, b: b - a,
    v_add_i32=lambda a, b: a + b,
    v_sub_i32=lambda a, b: a - b,
    v_lshlrev_b32=lambda a, b: b << (a & _ONES),
    v_lshrrev_b32=lambda a, b: b >> (a & _ONES),
    v_mul_lo_u32=lambda a, b: a * b,
    v_mul_hi_u32=lambda a, b: a.astype(U64) * b.astype(U64) >> U64(32),
    v_mul_u32_u24=lambda a, b: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)),
    v_max_u32=np.maximum,
    v_min_u32=np.minimum,
    v_bfm_b32=lambda a, b: (U32(1) << (a & _ONES)) - U32(1) << (b & _ONES),
    v_mbcnt_lo_u32_b32=lambda a, b: _count_below(a, 0) + b,
    v_mbcnt_hi_u32_b32=lambda a, b: _count_below(a, 32) + b,
    v_bcnt_u32_b32=lambda a, b: _count_ones(a) + b,
)
define("u32 > u32", v_not_b32=lambda a: ~a, v_bfrev_b32=lambda a: _reverse(a), v_ffbl_b32=lambda a: _lowest_one(a))
define("u32 > u32", v_ffbh_u32=lambda a: np.where(a == 0, U32(_MAX), U32(32) - np.frexp(a.astype(np.float64))[1]))
define(
    "i32 i32 > i32",
    v_max_i32=np.maximum,
    v_min_i32=np.minimum,
    v_mul_hi_i32=lambda a, b: a.astype(np.int64) * b >> 32,
    v_mul_i32_i24=lambda a, b: _signed_24(a) * _signed_24(b),
)
define("u32 i32 > i32", v_ashrrev_i32=lambda a, b: b >> (a & _ONES).astype(np.int32))
define(
    "u32 u32 u32 > u32",
    v_add3_u32=lambda a, b, c: a + b + c,
    v_sad_u32=lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c,
    v_or3_b32=lambda a, b, c: a | b | c,
    v_xor3_b32=lambda a, b, c: a ^ b ^ c,
    v_and_or_b32=lambda a, b, c: a & b | c,
    v_xad_u32=lambda a, b, c: (a ^ b) + c,
    v_lshl_add_u32=lambda a, b, c: (a << (b & _ONES)) + c,
    v_add_lshl_u32=lambda a, b, c: a + b << (c & _ONES),
    v_lshl_or_b32=lambda a, b, c: a << (b & _ONES) | c,
    v_sad_u16=lambda a, b, c: _distance(a & _LOW, b & _LOW) + _distance(a >> _HALF, b >> _HALF) + c,
    v_mad_u32_u24=lambda a, b, c: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)) + c,
    v_max3_u32=lambda a, b, c: np.maximum(np.maximum(a, b), c),
    v_min3_u32=lambda a, b, c: np.minimum(np.minimum(a, b), c),
    v_bfe_u32=lambda a, b, c: a >> (b & _ONES) & (U32(1) << (c & _ONES)) - U32(1),
    v_bfi_b32=lambda a, b, c: a & b | ~a & c,
    v_alignbit_b32=lambda a, b, c: (a.astype(U64) << U64(32) | b) >> (c & _ONES).astype(U64) & U64(_MAX),
    v_alignbyte_b32=lambda a, b, c: (a.astype(U64) << U64(32) | b) >> (c & U32(3)).astype(U64) * U64(8) & U64(_MAX),
    v_perm_b32=lambda a, b, c: _permute_bytes(a, b, c),
)
define(
    "i32 i32 i32 > i32",
    v_max3_i32=lambda a, b, c: np.maximum(np.maximum(a, b), c),
    v_min3_i32=lambda a, b, c: np.minimum(np.minimum(a, b), c),
    v_med3_i32=lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)),
    v_mad_i32_i24=lambda a, b, c: _signed_24(a) * _signed_24(b) + c,
)
define("u32 u32 u32 > i32", v_bfe_i32=lambda a, b, c: _extract_signed(a, b & _ONES, c & _ONES))
define("u32 u32 > u32 mask", v_add_co_u32=lambda a, b: _carry(a, b, 0), v_sub_co_u32=lambda a, b: _borrow(a, b, 0))
define("u32 u32 > u32 mask", v_subrev_co_u32=lambda a, b: _borrow(b, a, 0))
define("u32 u32 mask > u32 mask", v_addc_co_u32=lambda a, b, carry: _carry(a, b, carry))
define("u32 u32 mask > u32 mask", v_subb_co_u32=lambda a, b, borrow: _borrow(a, b, borrow))
define("u32 u32 mask > u32 mask", v_subbrev_co_u32=lambda a, b, borrow: _borrow(b, a, borrow))
define("u32 u32 u64 > u64 mask", v_mad_u64_u32=lambda a, b, c: _multiply_add(a.astype(U64) * b.astype(U64), c))
define("i32 i32 i64 > i64 mask", v_mad_i64_i32=lambda a, b, c: _signed_multiply_add(a.astype(np.int64) * b, c))
define("u64 u32 u64 > u64", v_lshl_add_u64=lambda a, b, c: (a << (b & U32(7)).astype(U64)) + c)
define("u64 u64 > u64", v_add_nc_u64=lambda a, b: a + b, v_sub_nc_u64=lambda a, b: a - b)
define(
    "u32 u64 > u64",
    v_lshlrev_b64=lambda a, b: b << (a & U32(63)).astype(U64),
    v_lshrrev_b64=lambda a, b: b >> (a & U32(63)).astype(U64),
)
define("u32 i64 > i64", v_ashrrev_i64=lambda a, b: b >> (a & U32(63)).astype(np.int64))
define(
    "u16 u16 > u16",
    v_add_u16=lambda a, b: a + b,
    v_sub_u16=lambda a, b: a - b,
    v_mul_lo_u16=lambda a, b: a * b,
    v_max_u16=np.maximum,
    v_min_u16=np.minimum,
    v_and_b16=lambda a, b: a & b,
    v_or_b16=lambda a, b: a | b,
    v_xor_b16=lambda a, b: a ^ b,
    v_lshlrev_b16=lambda a, b: b << (a & np.uint16(15)),
    v_lshrrev_b16=lambda a, b: b >> (a & np.uint16(15)),
)
define("u16 i16 > i16", v_ashrrev_i16=lambda a, b: b >> (a & np.uint16(15)).astype(np.int16))
define("i16 i16 > i16", v_max_i16=np.maximum, v_min_i16=np.minimum)
define("u16 > u16", v_not_b16=lambda a: ~a)

for _name, _compare in COMPARISONS.items():
    for _kind in ("f16", "f32", "f64", "i16", "i32", "i64", "u16", "u32", "u64"):
        define(f"{_kind} {_kind} > mask", **{f"v_cmp_{_name}_{_kind}": _compare})
        define(f"{_kind} {_kind} > lanes", **{f"v_cmpx_{_name}_{_kind}": _compare})
define("f32 u32 > mask", v_cmp_class_f32=classify)
define("f16 u32 > mask", v_cmp_class_f16=classify)

SATURATING: dict[str, Callable[..., Any]] = {
    "v_add_u32": lambda a, b: np.minimum(a.astype(np.int64) + b, _MAX),
    "v_sub_u32": lambda a, b: np.maximum(a.astype(np.int64) - b, 0),
    "v_subrev_u32": lambda a, b: np.maximum(b.astype(np.int64) - a, 0),
    "v_add_i32": lambda a, b: _saturated(a.view(np.int32).astype(np.int64) + b.view(np.int32)),
    "v_sub_i32": lambda a, b: _saturated(a.view(np.int32).astype(np.int64) - b.view(np.int32)),
}
"""What integer instructions compute with the modifier ``clamp``."""


def _saturated(value: Any) -> Any:
    return np.clip(value, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(U32)


def _pack(low: Any, high: Any) -> Any:
    return low.view(np.uint16).astype(U32) | high.view(np.uint16).astype(U32) << _HALF


def _signed_24(value: Any) -> Any:
    return value << np.int32(8) >> np.int32(8)


def _reverse(value: Any) -> Any:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        value = value >> U32(shift) & U32(mask) | (value & U32(mask)) << U32(shift)
    return value


def _lowest_one(value: Any) -> Any:
    lowest = (value & ~value + U32(1)).astype(np.float64)
    return np.where(value == 0, U32(_MAX), (np.frexp(lowest)[1] - 1).astype(U32))


def _count_below(mask: Any, first: int) -> Any:
    """Return for each lane how many bits of `mask`, which stand for lanes from `first`, are of lower lanes."""
    size = np.size(mask) if np.ndim(mask) else 64
    below = np.clip(np.arange(size) - first, 0, 32)
    return _count_ones(mask & ((U64(1) << below.astype(U64)) - U64(1)).astype(U32))


def _count_ones(value: Any) -> Any:
    count = value - (value >> U32(1) & U32(0x55555555))
    count = (count & U32(0x33333333)) + (count >> U32(2) & U32(0x33333333))
    count = count + (count >> U32(4)) & U32(0x0F0F0F0F)
    return (count * U32(0x01010101) & U32(_MAX)) >> U32(24)


def _extract_signed(value: Any, first: Any, width: Any) -> Any:
    unused = U32(32) - width & _ONES
    part = (value >> first << unused).view(np.int32) >> unused.astype(np.int32)
    return np.where(width == 0, np.int32(0), part)


def _permute_bytes(a: Any, b: Any, selector: Any) -> Any:
    """Return four bytes of the eight of `b` (0 to 3) and `a` (4 to 7), or what selectors over 7 stand for."""
    if not np.ndim(selector) and not selector & U32(0xF8F8F8F8):  # of a scalar register: the same for all lanes
        lanes = np.broadcast(a, b).size
        eight = np.empty((lanes, 2), U32)
        eight[:, 0], eight[:, 1] = b, a
        places = [int(selector) >> 8 * position & 7 for position in range(4)]
        return np.ascontiguousarray(eight.view(np.uint8)[:, places]).view(U32)[:, 0]
    both = a.astype(U64) << U64(32) | b
    result: Any = U32(0)
    for position in range(4):
        wanted = selector >> U32(8 * position) & U32(255)
        part = both >> ((wanted & U32(7)) * U32(8)).astype(U64) & U64(255)
        if (wanted > 7).any():
            sign = both >> ((wanted & U32(3)) * U32(16) + U32(15)).astype(U64) & U64(1)
            other = np.where(wanted < 12, sign * U64(255), np.where(wanted == 12, U64(0), U64(255)))
            part = np.where(wanted > 7, other, part)
        result = result | part.astype(U32) << U32(8 * position)
    return result


def _carry(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    total = a.astype(np.int64) + b + carry
    return total, total > _MAX


def _borrow(a: Any, b: Any, borrow: Any) -> tuple[Any, Any]:
    rest = a.astype(np.int64) - b - borrow
    return rest & _MAX, rest < 0


def _multiply_then_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded twice; these instructions of gfx9 flush denormals in every mode."""
    product = flush_denormals(flush_denormals(a) * flush_denormals(b))
    return flush_denormals(product + flush_denormals(c))


def _multiply_add(product: Any, addend: Any) -> tuple[Any, Any]:
    total = product + addend
    return total, total < product


def _signed_multiply_add(product: Any, addend: Any) -> tuple[Any, Any]:
    """Return the low 64 bits of the sum, and its bit 64, the sign of the exact sum."""
    total = product + addend
    overflowed = ((product ^ total) & (addend ^ total)) < 0
    return total, (total < 0) ^ overflowed


def _bit_operation(table: int, a: Any, b: Any, c: Any) -> Any:
    """Return bits by a truth table with 8 rows; `a` is the highest bit of the number of a row."""
    result: Any = U32(0)
    for row in range(8):
        if table >> row & 1:
            result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


def bit_operation(table: int) -> Callable[..., Any]:
    """Return what ``v_bitop3_b32`` computes with a truth table."""
    return partial(_bit_operation, table)
