"""What scalar instructions compute, in Python integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wheelfactory.emulator.operands import to_signed
from wheelfactory.emulator.rounding import COMPARISONS, fused, to_integer
from wheelfactory.emulator.table import define

_MAX = 0xFFFFFFFF
_SMALLEST, _LARGEST = -(1 << 31), (1 << 31) - 1


def _add_signed(a: int, b: int) -> tuple[int, bool]:
    return a + b, not _SMALLEST <= a + b <= _LARGEST


def _logic(compute: Callable[..., int], *names: str) -> None:
    """Define instructions of 32 or 64 bits; SCC says whether the result is not 0."""
    for name in names:
        bits = int(name[-2:])

        def both(*values: int, full: int = (1 << bits) - 1) -> tuple[int, bool]:
            result = compute(*values) & full
            return result, result != 0

        kind = f"su{bits}"
        define(" ".join([kind] * compute.__code__.co_argcount) + f" > {kind} scc", **{name: both})


_logic(lambda a, b: a & b, "s_and_b32", "s_and_b64")
_logic(lambda a, b: a | b, "s_or_b32", "s_or_b64")
_logic(lambda a, b: a ^ b, "s_xor_b32", "s_xor_b64")
_logic(lambda a, b: a & ~b, "s_andn2_b32", "s_andn2_b64")
_logic(lambda a, b: a | ~b, "s_orn2_b32", "s_orn2_b64")
_logic(lambda a, b: ~(a & b), "s_nand_b32", "s_nand_b64")
_logic(lambda a, b: ~(a | b), "s_nor_b32", "s_nor_b64")
_logic(lambda a, b: ~(a ^ b), "s_xnor_b32", "s_xnor_b64")
_logic(lambda a: ~a, "s_not_b32", "s_not_b64")


def _masking(compute: Callable[[int, int], int], *names: str) -> None:
    """Define instructions that save EXEC and then change it: `compute` gets the operand and EXEC."""
    for name in names:
        bits = int(name[-2:])

        def save(value: int, lanes: int, full: int = (1 << bits) - 1) -> tuple[int, int, bool]:
            changed = compute(value, lanes) & full
            return lanes, changed, changed != 0

        define(f"su{bits} exec > su{bits} exec scc", **{name: save})


_masking(lambda a, lanes: a & lanes, "s_and_saveexec_b32", "s_and_saveexec_b64")
_masking(lambda a, lanes: a | lanes, "s_or_saveexec_b32", "s_or_saveexec_b64")
_masking(lambda a, lanes: a ^ lanes, "s_xor_saveexec_b32", "s_xor_saveexec_b64")
_masking(lambda a, lanes: a & ~lanes, "s_andn2_saveexec_b32", "s_andn2_saveexec_b64")
_masking(lambda a, lanes: a | ~lanes, "s_orn2_saveexec_b32", "s_orn2_saveexec_b64")
_masking(lambda a, lanes: ~a & lanes, "s_andn1_saveexec_b32", "s_andn1_saveexec_b64", "s_and_not0_saveexec_b32")

define("su32 > su32", s_mov_b32=lambda a: a, s_brev_b32=lambda a: int(f"{a:032b}"[::-1], 2))
define("su64 > su64", s_mov_b64=lambda a: a, s_brev_b64=lambda a: int(f"{a:064b}"[::-1], 2))
define("su32 su32 scc > su32", s_cselect_b32=lambda a, b, scc: a if scc else b)
define("su64 su64 scc > su64", s_cselect_b64=lambda a, b, scc: a if scc else b)
define("su32 scc old > su32", s_cmov_b32=lambda a, scc, old: a if scc else old)
define("su64 scc old > su64", s_cmov_b64=lambda a, scc, old: a if scc else old)
define("sk16 > su32", s_movk_i32=lambda k: k)

define(
    "su32 su32 > su32 scc",
    s_add_u32=lambda a, b: (a + b, a + b > _MAX),
    s_sub_u32=lambda a, b: (a - b, a < b),
    s_lshl1_add_u32=lambda a, b: ((a << 1) + b, (a << 1) + b > _MAX),
    s_lshl2_add_u32=lambda a, b: ((a << 2) + b, (a << 2) + b > _MAX),
    s_lshl3_add_u32=lambda a, b: ((a << 3) + b, (a << 3) + b > _MAX),
    s_lshl4_add_u32=lambda a, b: ((a << 4) + b, (a << 4) + b > _MAX),
    s_min_u32=lambda a, b: (min(a, b), a < b),
    s_max_u32=lambda a, b: (max(a, b), a > b),
    s_lshl_b32=lambda a, b: (a << (b & 31), a << (b & 31) & _MAX != 0),
    s_lshr_b32=lambda a, b: (a >> (b & 31), a >> (b & 31) != 0),
    s_bfe_u32=lambda a, b: _extract(a, b, 32),
)
define(
    "su32 su32 scc > su32 scc",
    s_addc_u32=lambda a, b, carry: (a + b + carry, a + b + carry > _MAX),
    s_subb_u32=lambda a, b, borrow: (a - b - borrow, a < b + borrow),
)
define(
    "si32 si32 > su32 scc",
    s_add_i32=_add_signed,
    s_sub_i32=lambda a, b: _add_signed(a, -b),
    s_min_i32=lambda a, b: (min(a, b), a < b),
    s_max_i32=lambda a, b: (max(a, b), a > b),
    s_absdiff_i32=lambda a, b: (abs(a - b), a != b),
)
define("si32 su32 > su32 scc", s_ashr_i32=lambda a, b: (a >> (b & 31), a >> (b & 31) != 0))
define("si32 > su32 scc", s_abs_i32=lambda a: (abs(a), a != 0))
define("sk16 old > su32 scc", s_addk_i32=lambda k, old: _add_signed(to_signed(old, 32), k))
define("sk16 old > su32", s_mulk_i32=lambda k, old: k * old)
define(
    "su64 su32 > su64 scc",
    s_lshl_b64=lambda a, b: (a << (b & 63), a << (b & 63) & (1 << 64) - 1 != 0),
    s_lshr_b64=lambda a, b: (a >> (b & 63), a >> (b & 63) != 0),
    s_bfe_u64=lambda a, b: _extract(a, b, 64),
)
define("si64 su32 > su64 scc", s_ashr_i64=lambda a, b: (a >> (b & 63), a >> (b & 63) != 0))
define("su32 su32 > su32 scc", s_bfe_i32=lambda a, b: _extract(a, b, 32, signed=True))
define(
    "su32 su32 > su32",
    s_mul_i32=lambda a, b: a * b,
    s_mul_hi_u32=lambda a, b: a * b >> 32,
    s_bfm_b32=lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    s_pack_ll_b32_b16=lambda a, b: a & 0xFFFF | b << 16,
    s_pack_lh_b32_b16=lambda a, b: a & 0xFFFF | b & 0xFFFF0000,
    s_pack_hh_b32_b16=lambda a, b: a >> 16 | b & 0xFFFF0000,
)
define("si32 si32 > su32", s_mul_hi_i32=lambda a, b: a * b >> 32)
define("su64 su64 > su64", s_add_u64=lambda a, b: a + b, s_sub_u64=lambda a, b: a - b, s_mul_u64=lambda a, b: a * b)
define(
    "su32 > su32",
    s_sext_i32_i8=lambda a: to_signed(a & 0xFF, 8),
    s_sext_i32_i16=lambda a: to_signed(a & 0xFFFF, 16),
    s_ff1_i32_b32=lambda a: (a & -a).bit_length() - 1,
    s_flbit_i32_b32=lambda a: 32 - a.bit_length() if a else -1,
)
define("su64 > su32", s_ff1_i32_b64=lambda a: (a & -a).bit_length() - 1)
define("su32 > su32 scc", s_bcnt1_i32_b32=lambda a: (a.bit_count(), a != 0))
define("su64 > su32 scc", s_bcnt1_i32_b64=lambda a: (a.bit_count(), a != 0))
define(
    "su32 su32 > scc", s_bitcmp0_b32=lambda a, b: not a >> (b & 31) & 1, s_bitcmp1_b32=lambda a, b: a >> (b & 31) & 1
)
define(
    "sf32 sf32 > sf32",
    s_add_f32=lambda a, b: a + b,
    s_sub_f32=lambda a, b: a - b,
    s_mul_f32=lambda a, b: a * b,
    s_max_f32=np.fmax,
    s_min_f32=np.fmin,
)
define("sf32 sf32 sf32 > sf32", s_fmamk_f32=fused, s_fmaak_f32=fused)
define("sf32 sf32 old > sf32", s_fmac_f32=fused)
define("sf32 > sf32", s_floor_f32=np.floor, s_ceil_f32=np.ceil, s_trunc_f32=np.trunc, s_rndne_f32=np.rint)
define("su32 > sf32", s_cvt_f32_u32=np.float32)
define("si32 > sf32", s_cvt_f32_i32=np.float32)
define("sf32 > su32", s_cvt_u32_f32=lambda a: to_integer(a, 0, _MAX))
define("sf32 > su32", s_cvt_i32_f32=lambda a: to_integer(a, _SMALLEST, _LARGEST))

for _name, _compare in COMPARISONS.items():
    for _kind, _operands, _fixed in (("i32", "si32", "sk16"), ("u32", "su32", "uk16"), ("u64", "su64", "")):
        define(f"{_operands} {_operands} > scc", **{f"s_cmp_{_name}_{_kind}": _compare})
        if _fixed:
            define(f"{_operands} {_fixed} > scc", **{f"s_cmpk_{_name}_{_kind}": _compare})
    define("sf32 sf32 > scc", **{f"s_cmp_{_name}_f32": _compare})


def _extract(value: int, field: int, bits: int, *, signed: bool = False) -> tuple[int, bool]:
    """Return the bits that a field names: its position in the lowest bits, its width from bit 16."""
    width = min(field >> 16 & 0x7F, bits)
    part = value >> (field & bits - 1) & (1 << width) - 1
    result: Any = to_signed(part, width) if signed and width else part
    return result, result != 0
