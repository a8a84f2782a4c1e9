"""Scalar instructions: results and SCC, against Python's integers."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable

import pytest

from emulated import INTEGERS, execute, new_wave

ALL, WIDE = 0xFFFFFFFF, (1 << 64) - 1


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def overflows(value: int) -> bool:
    return not -(1 << 31) <= value < 1 << 31


def field(value: int, what: int) -> int:
    return value >> (what & 31) & (1 << (what >> 16 & 127)) - 1


# result and SCC; None if SCC keeps its value
TWO: dict[str, Callable[[int, int], tuple[int, bool | None]]] = {
    "s_add_u32": lambda a, b: (a + b, a + b > ALL),
    "s_sub_u32": lambda a, b: (a - b, a < b),
    "s_add_i32": lambda a, b: (a + b, overflows(signed(a) + signed(b))),
    "s_sub_i32": lambda a, b: (a - b, overflows(signed(a) - signed(b))),
    "s_and_b32": lambda a, b: (a & b, a & b != 0),
    "s_or_b32": lambda a, b: (a | b, a | b != 0),
    "s_xor_b32": lambda a, b: (a ^ b, a != b),
    "s_andn2_b32": lambda a, b: (a & ~b, a & ~b != 0),
    "s_orn2_b32": lambda a, b: (a | ~b, (a | ~b) & ALL != 0),
    "s_nand_b32": lambda a, b: (~(a & b), a & b != ALL),
    "s_nor_b32": lambda a, b: (~(a | b), a | b != ALL),
    "s_xnor_b32": lambda a, b: (~(a ^ b), a ^ b != ALL),
    "s_lshl_b32": lambda a, b: (a << (b & 31), (a << (b & 31)) & ALL != 0),
    "s_lshr_b32": lambda a, b: (a >> (b & 31), a >> (b & 31) != 0),
    "s_ashr_i32": lambda a, b: (signed(a) >> (b & 31), signed(a) >> (b & 31) != 0),
    "s_min_i32": lambda a, b: (min(signed(a), signed(b)), signed(a) < signed(b)),
    "s_max_i32": lambda a, b: (max(signed(a), signed(b)), signed(a) > signed(b)),
    "s_min_u32": lambda a, b: (min(a, b), a < b),
    "s_max_u32": lambda a, b: (max(a, b), a > b),
    "s_absdiff_i32": lambda a, b: (abs(signed(a) - signed(b)), a != b),
    "s_lshl3_add_u32": lambda a, b: ((a << 3) + b, (a << 3) + b > ALL),
    "s_mul_i32": lambda a, b: (a * b, None),
    "s_mul_hi_u32": lambda a, b: (a * b >> 32, None),
    "s_mul_hi_i32": lambda a, b: (signed(a) * signed(b) >> 32, None),
    "s_bfm_b32": lambda a, b: (((1 << (a & 31)) - 1) << (b & 31), None),
    "s_pack_ll_b32_b16": lambda a, b: (a & 0xFFFF | b << 16, None),
    "s_pack_lh_b32_b16": lambda a, b: (a & 0xFFFF | b & 0xFFFF0000, None),
    "s_pack_hh_b32_b16": lambda a, b: (a >> 16 | b & 0xFFFF0000, None),
}


@pytest.mark.parametrize("name", TWO)
def test_two_operands(name: str) -> None:
    before = new_wave()
    for a in INTEGERS:
        for b in INTEGERS[::3]:
            before.scc = 0
            w = execute(f"{name} s4, s5, s6", "gfx942", before, s5=a, s6=b)
            result, scc = TWO[name](a, b)
            assert (w.s[4], w.scc) == (result & ALL, int(scc or 0)), (a, b)


ONE: dict[str, Callable[[int], int]] = {
    "s_mov_b32": lambda a: a,
    "s_not_b32": lambda a: ~a,
    "s_brev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "s_abs_i32": lambda a: abs(signed(a)),
    "s_sext_i32_i8": lambda a: signed(a, 8),
    "s_sext_i32_i16": lambda a: signed(a, 16),
    "s_ff1_i32_b32": lambda a: f"{a:032b}"[::-1].find("1"),
    "s_flbit_i32_b32": lambda a: f"{a:032b}".find("1"),
    "s_bcnt1_i32_b32": lambda a: f"{a:b}".count("1"),
}


@pytest.mark.parametrize("name", ONE)
def test_one_operand(name: str) -> None:
    for a in INTEGERS:
        assert execute(f"{name} s4, s5", s5=a).s[4] == ONE[name](a) & ALL


def test_newer_names_are_the_same_instructions() -> None:
    for arch, new, old in (
        ("gfx1200", "s_add_co_u32", "s_add_u32"),
        ("gfx1100", "s_and_not1_b32", "s_andn2_b32"),
        ("gfx1200", "s_ctz_i32_b32", "s_ff1_i32_b32"),
    ):
        operands = "s4, s5, s6" if "ctz" not in new else "s4, s5"
        found = [execute(f"{name} {operands}", arch, s5=0xF0F0, s6=0xFF).s[4] for name in (new, old)]
        assert found[0] == found[1]


def test_fields_and_constants() -> None:
    for a in INTEGERS:
        for what in (0x40000, 0x80004, 0x20001F, 0x100010, 0x5):
            width = what >> 16 & 127
            value = field(a, what)
            assert execute("s_bfe_u32 s4, s5, s6", s5=a, s6=what).s[4] == value
            expected = signed(value, width) & ALL if width else 0
            assert execute("s_bfe_i32 s4, s5, s6", s5=a, s6=what).s[4] == expected
    assert execute("s_movk_i32 s4, 0x8000").s[4] == 0xFFFF8000
    assert execute("s_movk_i32 s4, 0x7fff").s[4] == 0x7FFF
    w = execute("s_addk_i32 s4, 0xffff", s4=5)
    assert (w.s[4], w.scc) == (4, 0)
    assert execute("s_mulk_i32 s4, 0xfffe", s4=7).s[4] == -14 & ALL
    assert execute("s_mov_b32 s4, 1.0").s[4] == 0x3F800000
    assert execute("s_mov_b64 s[4:5], -1").s[4:6] == [ALL, ALL]


def test_64_bits() -> None:
    values = [a | b << 32 for a in INTEGERS[::4] for b in INTEGERS[::5]]
    for a in values:
        for shift in (0, 1, 31, 32, 63, 64):
            for name, result in (
                ("s_lshl_b64", a << (shift & 63)),
                ("s_lshr_b64", a >> (shift & 63)),
                ("s_ashr_i64", signed(a, 64) >> (shift & 63)),
            ):
                w = execute(f"{name} s[4:5], s[6:7], s8", s6=a & ALL, s7=a >> 32, s8=shift)
                assert w.s[4] | w.s[5] << 32 == result & WIDE
                assert w.scc == (result & WIDE != 0)
    a, b = 0xF0F0F0F012345678, 0xFF00FF00FF00FF00
    for name, value in (("s_and_b64", a & b), ("s_xor_b64", a ^ b), ("s_andn2_b64", a & ~b), ("s_or_b64", a | b)):
        w = execute(f"{name} s[4:5], s[6:7], s[8:9]", s6=a & ALL, s7=a >> 32, s8=b & ALL, s9=b >> 32)
        assert (w.s[4] | w.s[5] << 32, w.scc) == (value & WIDE, 1)
    w = execute("s_bcnt1_i32_b64 s4, s[6:7]\ns_ff1_i32_b64 s5, s[6:7]", s6=0, s7=0b1100)
    assert w.s[4:6] == [2, 34]


def test_carry_and_selection() -> None:
    w = execute("s_add_u32 s4, s6, s8\ns_addc_u32 s5, s7, s9", s6=ALL, s7=1, s8=1, s9=ALL)
    assert (w.s[4], w.s[5], w.scc) == (0, 1, 1)
    w = execute("s_sub_u32 s4, s6, s8\ns_subb_u32 s5, s7, s9", s6=0, s7=5, s8=1, s9=2)
    assert (w.s[4], w.s[5], w.scc) == (ALL, 2, 0)
    w = execute("s_cmp_lg_u32 s4, 0\ns_cselect_b32 s5, s6, s7\ns_cselect_b64 s[8:9], -1, 0", s4=0, s6=1, s7=2)
    assert (w.s[5], w.s[8], w.s[9]) == (2, 0, 0)
    w = execute("s_cmp_lg_u32 s4, 0\ns_cmov_b32 s5, s6", s4=1, s5=9, s6=1)
    assert w.s[5] == 1


@pytest.mark.parametrize("name", ["eq", "lg", "gt", "ge", "lt", "le"])
def test_comparisons(name: str) -> None:
    compare = getattr(operator, {"lg": "ne"}.get(name, name))
    for a in INTEGERS:
        for b in INTEGERS[::2]:
            assert execute(f"s_cmp_{name}_u32 s4, s5", s4=a, s5=b).scc == compare(a, b)
            assert execute(f"s_cmp_{name}_i32 s4, s5", s4=a, s5=b).scc == compare(signed(a), signed(b))
        assert execute(f"s_cmpk_{name}_u32 s4, 0xffff", s4=a).scc == compare(a, 0xFFFF)
        assert execute(f"s_cmpk_{name}_i32 s4, 0xffff", s4=a).scc == compare(signed(a), -1)
    assert execute("s_bitcmp1_b32 s4, 3\n", s4=8).scc == 1
    assert execute("s_bitcmp0_b32 s4, 3\n", s4=8).scc == 0


def test_exec_is_saved_and_changed() -> None:
    w = execute("s_and_saveexec_b64 s[4:5], s[6:7]", exec=0b1111, s6=0b101, s7=0)
    assert (w.s[4], w.scalar_mask(126), w.scc, int(w.mask.sum())) == (0b1111, 0b101, 1, 2)
    w = execute("s_andn2_saveexec_b32 s4, s6", "gfx1100", exec=0b1111, s6=0b1111)
    assert (w.s[4], w.scalar_mask(126), w.scc) == (0b1111, 0, 0)
    w = execute("s_or_b64 exec, exec, s[6:7]", exec=1, s6=6, s7=0)
    assert (w.scalar_mask(126), w.mask[:4].tolist()) == (7, [True, True, True, False])
    w = execute("s_mov_b64 exec, -1", exec=1)
    assert w.full


def bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def test_floats() -> None:
    registers = {"s5": bits(1.5), "s6": bits(-2.25), "s4": bits(10)}
    for text, expected in (
        ("s_add_f32 s7, s5, s6", -0.75),
        ("s_mul_f32 s7, s5, -s6", 3.375),
        ("s_max_num_f32 s7, s5, s6", 1.5),
        ("s_floor_f32 s7, s6", -3.0),
        ("s_rndne_f32 s7, s6", -2.0),
        ("s_cvt_f32_i32 s7, s8", -3.0),
        ("v_s_rcp_f32 s7, s9", 0.25),
        ("s_fmamk_f32 s7, s5, 0x40000000, s6", 0.75),
    ):
        assert execute(text, "gfx1200", **registers, s8=-3 & ALL, s9=bits(4)).s[7] == bits(expected), text
    w = execute("s_fmac_f32 s4, s5, s6", "gfx1200", **registers)
    assert w.s[4] == bits(10 - 3.375)
    assert execute("s_cvt_i32_f32 s7, s6", "gfx1200", **registers).s[7] == -2 & ALL
    assert execute("s_cmp_lt_f32 s6, s5", "gfx1200", **registers).scc == 1
