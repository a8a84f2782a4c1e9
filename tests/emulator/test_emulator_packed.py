"""Instructions for pairs of numbers: which halves they read, and what they compute."""

from __future__ import annotations

import numpy as np

from emulated import execute, floats, new_wave

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
