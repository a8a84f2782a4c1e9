"""Data that moves between lanes, and instructions for pairs of numbers: DPP, SDWA, permutations, halves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emulated import execute, floats, integers, new_wave
from wheelfactory.emulator.findings import NotRunError

PLACES = np.arange(64, dtype=np.uint32)

# the lane that each lane reads; None if it has none
DPP: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[2,3,0,1]": lambda lane: lane ^ 2,
    "quad_perm:[1,1,1,3]": lambda lane: lane - lane % 4 + [1, 1, 1, 3][lane % 4],
    "row_shl:3": lambda lane: lane + 3 if lane % 16 + 3 < 16 else None,
    "row_shr:4": lambda lane: lane - 4 if lane % 16 >= 4 else None,
    "row_ror:5": lambda lane: lane - lane % 16 + (lane - 5) % 16,
    "row_mirror": lambda lane: lane - lane % 16 + 15 - lane % 16,
    "row_half_mirror": lambda lane: lane - lane % 8 + 7 - lane % 8,
    "row_bcast:15": lambda lane: lane - lane % 16 - 1 if lane >= 16 else None,
    "row_bcast:31": lambda lane: 31 if lane >= 32 else None,
    "row_newbcast:7": lambda lane: lane - lane % 16 + 7,
    "row_share:7": lambda lane: lane - lane % 16 + 7,
    "row_xmask:9": lambda lane: lane ^ 9,
    "dpp8:[7,6,5,4,3,2,1,0]": lambda lane: lane ^ 7,
}


@pytest.mark.parametrize("control", DPP)
def test_dpp_reads_other_lanes(control: str) -> None:
    source = [DPP[control](lane) for lane in range(64)]
    masks = "" if "dpp8" in control else " row_mask:0xf bank_mask:0xf"
    active = (1 << 64) - 1 - (1 << 9)
    kept = execute(f"v_mov_b32_dpp v0, v1 {control}{masks}", v0=PLACES + 100, v1=PLACES, exec=active)
    zeroed = execute(f"v_mov_b32_dpp v0, v1 {control}{masks} bound_ctrl:1", v0=PLACES + 100, v1=PLACES, exec=active)
    for lane, read in enumerate(source):
        missing = read is None or read == 9
        assert kept.u[0][lane] == (lane + 100 if missing or lane == 9 else read)
        assert zeroed.u[0][lane] == (109 if lane == 9 else 0 if missing else read)


def test_dpp_masks_rows_and_banks() -> None:
    w = execute(
        "v_add_u32_dpp v0, v1, v2 row_shl:4 row_mask:0x5 bank_mask:0x2", v0=PLACES, v1=PLACES, v2=PLACES * 0 + 1000
    )
    changed = [lane for lane in range(64) if w.u[0][lane] != lane]
    assert changed == [*range(4, 8), *range(36, 40)]
    assert w.u[0][4] == 1008
    w = execute("v_max_f32_dpp v1, v1, v1 row_ror:8 row_mask:0xf bank_mask:0xf", v1=np.arange(64, dtype=np.float32))
    assert w.f[1][:16].tolist() == [max(lane, (lane + 8) % 16) for lane in range(16)]


def test_sdwa_selects_parts() -> None:
    value = np.full(64, 0x80C3A501, np.uint32)
    for text, expected in (
        ("v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD", 0xA5),
        ("v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD", 0x80C3),
        (
            "v_add_u32_sdwa v0, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
            0xFFFF80C3,
        ),
        ("v_add_u32_sdwa v0, v2, v1 dst_sel:BYTE_2 dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_3", 0x800000),
        (
            "v_add_u32_sdwa v0, v2, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:BYTE_3",
            0x800007,
        ),
        ("v_cvt_f32_f16_sdwa v0, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0", 0xBCA02000),
    ):
        w = execute(text, v0=np.full(64, 7, np.uint32), v1=value, v2=np.zeros(64, np.uint32))
        assert w.u[0][0] == expected, text


def test_single_lanes() -> None:
    w = execute(
        "v_readfirstlane_b32 s4, v1\nv_readlane_b32 s5, v1, 63\nv_readlane_b32 s6, v1, s7",
        exec=1 << 20,
        v1=PLACES,
        s7=64 + 5,
    )
    assert w.s[4:7] == [20, 63, 5]
    w = execute("v_writelane_b32 v0, s4, 3", exec=0, v0=PLACES, s4=77)
    assert w.u[0][:5].tolist() == [0, 1, 2, 77, 4]
    w = execute("v_mbcnt_lo_u32_b32 v0, s4, 0\nv_mbcnt_hi_u32_b32 v0, s5, v0", s4=0x80000001, s5=0b101)
    assert w.u[0].tolist() == [bin(0x580000001 & (1 << lane) - 1).count("1") for lane in range(64)]
    assert execute("v_mbcnt_lo_u32_b32 v0, -1, 0", "gfx1201").u[0].tolist() == [*range(32)]


def test_swaps_and_permutations() -> None:
    w = execute("v_swap_b32 v0, v1", v0=PLACES, v1=PLACES + 100, exec=0b10)
    assert (w.u[0][:3].tolist(), w.u[1][:3].tolist()) == ([0, 101, 2], [100, 1, 102])
    w = execute("v_permlane32_swap_b32 v0, v1", "gfx950", v0=PLACES, v1=PLACES + 100)
    assert w.u[0].tolist() == [*range(32), *range(100, 132)]
    assert w.u[1].tolist() == [*range(32, 64), *range(132, 164)]
    w = execute("v_permlane16_swap_b32 v0, v1", "gfx950", v0=PLACES, v1=PLACES + 100)
    assert w.u[0].tolist() == [*range(16), *range(100, 116), *range(32, 48), *range(132, 148)]
    w = execute("v_permlanex16_b32 v0, v1, s4, s5", "gfx1100", v1=PLACES[:32], s4=0x76543210, s5=0xFEDCBA98)
    assert w.u[0].tolist() == [*range(16, 32), *range(16)]
    w = execute("v_permlane16_b32 v0, v1, s4, s5", "gfx1100", v1=PLACES[:32], s4=0x01234567, s5=0x89ABCDEF)
    assert w.u[0].tolist() == [*range(7, -1, -1), *range(15, 7, -1), *range(23, 15, -1), *range(31, 23, -1)]
    with pytest.raises(NotRunError, match="inactive lanes"):
        execute("v_permlanex16_b32 v0, v1, s4, s5", "gfx1100", v1=PLACES[:32], s4=0, s5=0, exec=1)


def test_lanes_read_each_other_through_local_memory() -> None:
    values = integers(1)
    reversed_places = (63 - PLACES) * 4
    w = execute("ds_bpermute_b32 v0, v1, v2", v1=reversed_places, v2=values)
    assert w.u[0].tolist() == values[::-1].tolist()
    w = execute("ds_permute_b32 v0, v1, v2 offset:4", v1=PLACES * 4, v2=values)
    assert w.u[0].tolist() == np.roll(values, 1).tolist()
    w = execute("ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)", v1=PLACES)
    assert w.u[0].tolist() == [lane ^ 16 for lane in range(64)]
    w = execute("ds_swizzle_b32 v0, v1 offset:0x401f", v1=PLACES)
    assert w.u[0].tolist() == [lane ^ 16 for lane in range(64)]
    w = execute("ds_swizzle_b32 v0, v1 offset:0x801b", v1=PLACES)
    assert w.u[0].tolist() == [lane ^ 3 for lane in range(64)]


def test_a_dual_instruction_reads_before_it_writes() -> None:
    one, two = np.full(32, 1, np.float32), np.full(32, 2, np.float32)
    w = execute("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0", "gfx1100", v0=one, v1=two)
    assert (w.f[0][0], w.f[1][0]) == (2, 1)
    w = execute("v_dual_fmac_f32 v0, v1, v1 :: v_dual_add_nc_u32 v3, 1, v2", "gfx1100", v0=one, v1=two, v2=one * 0)
    assert (w.f[0][0], w.u[3][0]) == (5, 1)
    w = execute("v_dual_cndmask_b32 v0, v0, v1 :: v_dual_mov_b32 v3, v0", "gfx1100", v0=one, v1=two, vcc=2)
    assert (w.f[0][:2].tolist(), w.f[3][1]) == ([1, 2], 1)


A, B, C = (np.array(each, np.float16) for each in ([1.5, -2.0], [0.25, 100.0], [3.0, -0.5]))


def pair(numbers: object) -> np.ndarray:
    """Return two float16 or 16-bit integers in one register."""
    return np.full(64, np.asarray(numbers).view(np.uint32)[0], np.uint32)


def halves(text: str, **registers: object) -> list[float]:
    w = execute(text, **registers)
    return np.array([w.u[0][0]], np.uint32).view(np.float16).tolist()  # type: ignore[no-any-return]


def test_float16() -> None:
    registers = {"v1": pair(A), "v2": pair(B), "v3": pair(C)}
    assert halves("v_pk_add_f16 v0, v1, v2", **registers) == (A + B).tolist()
    assert halves("v_pk_mul_f16 v0, v1, v2", **registers) == (A * B).tolist()
    assert halves("v_pk_fma_f16 v0, v1, v2, v3", **registers) == (A * B + C).tolist()
    assert halves("v_pk_max_f16 v0, v1, v2", **registers) == np.maximum(A, B).tolist()
    assert halves("v_pk_min_f16 v0, v1, v2", **registers) == np.minimum(A, B).tolist()
    assert halves("v_pk_mul_f16 v0, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]", **registers) == (A[::-1] * B).tolist()
    assert halves("v_pk_add_f16 v0, v1, v2 neg_lo:[0,1] neg_hi:[1,0]", **registers) == [1.25, 102.0]
    assert halves("v_pk_add_f16 v0, v1, 1.0 op_sel_hi:[1,0]", **registers) == [2.5, -1.0]


def test_integers_of_16_bits() -> None:
    a, b = np.array([0xFFFF, 3], np.uint16), np.array([2, 5], np.uint16)
    registers = {"v1": pair(a), "v2": pair(b)}
    for text, expected in (
        ("v_pk_add_u16 v0, v1, v2", [1, 8]),
        ("v_pk_sub_u16 v0, v1, v2", [0xFFFD, 0xFFFE]),
        ("v_pk_mul_lo_u16 v0, v1, v2", [0xFFFE, 15]),
        ("v_pk_max_i16 v0, v1, v2", [2, 5]),
        ("v_pk_max_u16 v0, v1, v2", [0xFFFF, 5]),
        ("v_pk_lshlrev_b16 v0, v2, v1", [0xFFFC, 96]),
        ("v_pk_mad_u16 v0, v1, v2, v2", [0, 20]),
    ):
        w = execute(text, **registers)
        assert [int(w.u[0][0]) & 0xFFFF, int(w.u[0][0]) >> 16] == expected, text


def test_float32() -> None:
    a, b, c, d = (floats(shift) for shift in range(4))
    registers = {"v2": a, "v3": b, "v4": c, "v5": d}
    with np.errstate(all="ignore"):
        w = execute("v_pk_mul_f32 v[0:1], v[2:3], v[4:5]", **registers)
        assert str(w.f[0]) + str(w.f[1]) == str(a * c) + str(b * d)
        w = execute("v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,0] neg_lo:[0,1]", **registers)
        assert str(w.f[0]) + str(w.f[1]) == str(b - c) + str(a + c)
    w = execute(
        "v_pk_fma_f32 v[0:1], s[2:3], 1.0, v[4:5] op_sel_hi:[1,0,1]",
        s2=0x40000000,
        s3=0x40400000,
        v4=np.zeros(64, np.float32),
        v5=np.ones(64, np.float32),
    )
    assert (w.f[0][0], w.f[1][0]) == (2, 4)
    w = execute("v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]", **registers)
    assert (w.u[0].tolist(), w.u[1].tolist()) == (b.view(np.uint32).tolist(), c.view(np.uint32).tolist())
    w = execute("v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[0,1]", **registers)
    assert (w.u[0].tolist(), w.u[1].tolist()) == (a.view(np.uint32).tolist(), d.view(np.uint32).tolist())


def test_float32_flushes_denormals_in_the_mode_that_says_so_but_a_move_keeps_them() -> None:
    tiny, ones = np.full(64, 2.0**-130, np.float32), np.full(64, 1.0, np.float32)
    registers = {"v2": tiny, "v3": ones, "v4": ones, "v5": np.full(64, 2.0**-130, np.float32)}
    w = new_wave()
    w.denormals = 0
    execute(
        "v_pk_mul_f32 v[0:1], v[2:3], v[4:5]\nv_pk_mov_b32 v[6:7], v[2:3], v[4:5] op_sel:[0,1]",
        "gfx942",
        w,
        **registers,
    )
    assert (w.f[0][0], w.f[1][0], w.f[6][0], w.f[7][0]) == (0, 0, tiny[0], tiny[0])
    w = new_wave("gfx1201")
    text, (small, one) = "s_mul_f32 s7, s5, s6\ns_mul_f32 s8, s6, s6", (int(x.view(np.uint32)[0]) for x in (tiny, ones))
    for mode, results in ((0, [0, one]), (1, [0, one]), (2, [0, one]), (3, [small, one])):
        w.denormals = mode
        assert execute(text, "gfx1201", w, s5=small, s6=one).s[7:9] == results
    w.denormals = 1
    halved = execute("s_mul_f32 s7, s5, 0.5", "gfx1201", w, s5=0x00800000)
    assert halved.s[7] == 0, "a result is flushed too"


def test_dot_products() -> None:
    registers = {"v0": np.full(64, 10, np.float32), "v1": pair(A), "v2": pair(B), "v3": np.full(64, 7, np.float32)}
    dot = float(A[0]) * float(B[0]) + float(A[1]) * float(B[1])
    assert execute("v_dot2_f32_f16 v0, v1, v2, v3", **registers).f[0][0] == dot + 7
    assert execute("v_dot2c_f32_f16_e32 v0, v1, v2", **registers).f[0][0] == dot + 10
