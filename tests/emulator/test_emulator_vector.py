"""Vector instructions compute what Python's integers, fractions and struct give, lane by lane."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from emulated import bits_of, by_lane, execute, floats, integers, lanes, nearest, new_wave
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.wave import VCC

ALL = 0xFFFFFFFF


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def field(value: int, first: int, width: int) -> int:
    return value >> (first & 31) & (1 << (width & 31)) - 1


def permuted(high: int, low: int, selector: int) -> int:
    data = struct.pack("<II", low, high)
    result = bytearray()
    for wanted in struct.pack("<I", selector):
        if wanted < 8:
            result.append(data[wanted])
        elif wanted < 12:
            result.append(255 * (data[2 * (wanted - 8) + 1] >> 7))
        else:
            result.append(0 if wanted == 12 else 255)
    return int(struct.unpack("<I", result)[0])


def by_truth_table(table: int, a: int, b: int, c: int) -> int:
    return sum((table >> (4 * (a >> bit & 1) + 2 * (b >> bit & 1) + (c >> bit & 1)) & 1) << bit for bit in range(32))


def count_inputs(text: str) -> int:
    return len(re.findall(r"\bv\d", text)) - 1


INTEGER: dict[str, Callable[..., int]] = {
    "v_and_b32_e32 v0, v1, v2": lambda a, b: a & b,
    "v_or_b32_e32 v0, v1, v2": lambda a, b: a | b,
    "v_xor_b32_e32 v0, v1, v2": lambda a, b: a ^ b,
    "v_xnor_b32_e32 v0, v1, v2": lambda a, b: ~(a ^ b),
    "v_add_u32_e32 v0, v1, v2": lambda a, b: a + b,
    "v_sub_u32_e32 v0, v1, v2": lambda a, b: a - b,
    "v_subrev_u32_e32 v0, v1, v2": lambda a, b: b - a,
    "v_add_u32_e64 v0, v1, v2 clamp": lambda a, b: min(a + b, ALL),
    "v_sub_u32_e64 v0, v1, v2 clamp": lambda a, b: max(a - b, 0),
    "v_subrev_u32_e64 v0, v1, v2 clamp": lambda a, b: max(b - a, 0),
    "v_add_i32 v0, v1, v2": lambda a, b: a + b,
    "v_add_i32 v0, v1, v2 clamp": lambda a, b: min(max(signed(a) + signed(b), -(1 << 31)), (1 << 31) - 1),
    "v_sub_i32 v0, v1, v2 clamp": lambda a, b: min(max(signed(a) - signed(b), -(1 << 31)), (1 << 31) - 1),
    "v_lshlrev_b32_e32 v0, v1, v2": lambda a, b: b << (a & 31),
    "v_lshrrev_b32_e32 v0, v1, v2": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32_e32 v0, v1, v2": lambda a, b: signed(b) >> (a & 31),
    "v_mul_lo_u32 v0, v1, v2": lambda a, b: a * b,
    "v_mul_hi_u32 v0, v1, v2": lambda a, b: a * b >> 32,
    "v_mul_hi_i32 v0, v1, v2": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24_e32 v0, v1, v2": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "v_mul_i32_i24_e32 v0, v1, v2": lambda a, b: signed(a, 24) * signed(b, 24),
    "v_max_u32_e32 v0, v1, v2": max,
    "v_min_u32_e32 v0, v1, v2": min,
    "v_max_i32_e32 v0, v1, v2": lambda a, b: max(signed(a), signed(b)),
    "v_min_i32_e32 v0, v1, v2": lambda a, b: min(signed(a), signed(b)),
    "v_bfm_b32 v0, v1, v2": lambda a, b: (1 << (a & 31)) - 1 << (b & 31),
    "v_bcnt_u32_b32 v0, v1, v2": lambda a, b: a.bit_count() + b,
    "v_mov_b32_e32 v0, v1": lambda a: a,
    "v_not_b32_e32 v0, v1": lambda a: ~a,
    "v_bfrev_b32_e32 v0, v1": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbl_b32_e32 v0, v1": lambda a: (a & -a).bit_length() - 1,
    "v_ffbh_u32_e32 v0, v1": lambda a: 32 - a.bit_length() if a else -1,
    "v_add3_u32 v0, v1, v2, v3": lambda a, b, c: a + b + c,
    "v_sad_u32 v0, v1, v2, v3": lambda a, b, c: abs(a - b) + c,
    "v_or3_b32 v0, v1, v2, v3": lambda a, b, c: a | b | c,
    "v_xor3_b32 v0, v1, v2, v3": lambda a, b, c: a ^ b ^ c,
    "v_and_or_b32 v0, v1, v2, v3": lambda a, b, c: a & b | c,
    "v_xad_u32 v0, v1, v2, v3": lambda a, b, c: (a ^ b) + c,
    "v_lshl_add_u32 v0, v1, v2, v3": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32 v0, v1, v2, v3": lambda a, b, c: a + b << (c & 31),
    "v_lshl_or_b32 v0, v1, v2, v3": lambda a, b, c: a << (b & 31) | c,
    "v_mad_u32_u24 v0, v1, v2, v3": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
    "v_mad_i32_i24 v0, v1, v2, v3": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "v_sad_u16 v0, v1, v2, v3": lambda a, b, c: abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16)) + c,
    "v_max3_u32 v0, v1, v2, v3": max,
    "v_min3_u32 v0, v1, v2, v3": min,
    "v_max3_i32 v0, v1, v2, v3": lambda *values: max(map(signed, values)),
    "v_min3_i32 v0, v1, v2, v3": lambda *values: min(map(signed, values)),
    "v_med3_i32 v0, v1, v2, v3": lambda *values: sorted(map(signed, values))[1],
    "v_bfe_u32 v0, v1, v2, v3": field,
    "v_bfe_i32 v0, v1, v2, v3": lambda a, b, c: signed(field(a, b, c), c & 31) if c & 31 else 0,
    "v_bfi_b32 v0, v1, v2, v3": lambda a, b, c: a & b | ~a & c,
    "v_alignbit_b32 v0, v1, v2, v3": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32 v0, v1, v2, v3": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_perm_b32 v0, v1, v2, v3": permuted,
    "v_bitop3_b32 v0, v1, v2, v3 bitop3:0x6c": lambda a, b, c: by_truth_table(0x6C, a, b, c),
    "v_lshlrev_b16_e32 v0, v1, v2": lambda a, b: (b << (a & 15)) & 0xFFFF,
    "v_lshrrev_b16_e32 v0, v1, v2": lambda a, b: (b & 0xFFFF) >> (a & 15),
    "v_ashrrev_i16_e32 v0, v1, v2": lambda a, b: signed(b, 16) >> (a & 15) & 0xFFFF,
    "v_add_u16_e32 v0, v1, v2": lambda a, b: a + b & 0xFFFF,
    "v_sub_u16_e32 v0, v1, v2": lambda a, b: a - b & 0xFFFF,
    "v_mul_lo_u16_e32 v0, v1, v2": lambda a, b: a * b & 0xFFFF,
    "v_max_i16_e32 v0, v1, v2": lambda a, b: max(signed(a, 16), signed(b, 16)) & 0xFFFF,
}
"""Results have 32 bits; 16-bit instructions of gfx9 clear the others."""


@pytest.mark.parametrize("text", INTEGER)
def test_integers(text: str) -> None:
    compute, inputs = INTEGER[text], [integers(shift) for shift in range(count_inputs(text))]
    if text.startswith("v_perm"):
        inputs[2] = np.array(lanes((0x0C0D0001, 0x07060504, 0x0B0A0908, 0x03020100, 0xFF0C0700)), np.uint32)
    w = execute(text, **{f"v{number}": each for number, each in enumerate(inputs, 1)})
    assert w.u[0].tolist() == [value & ALL for value in by_lane(compute, *inputs)]


def exactly(compute: Callable[..., Fraction], special: Callable[..., Any]) -> Callable[..., float]:
    """Return a function that rounds an exact result once, and asks numpy about zeros, infinities and NaN."""

    def function(*values: float) -> float:
        floating = float(special(*(np.float64(value) for value in values)))
        if not all(math.isfinite(value) for value in values) or not math.isfinite(floating) or floating == 0:
            return floating
        result = nearest(compute(*map(Fraction, values)))
        return math.copysign(math.inf, result) if abs(result) >= 2.0**128 else result

    return function


FLOAT: dict[str, Callable[..., float]] = {
    "v_add_f32_e32 v0, v1, v2": exactly(lambda a, b: a + b, lambda a, b: a + b),
    "v_sub_f32_e32 v0, v1, v2": exactly(lambda a, b: a - b, lambda a, b: a - b),
    "v_subrev_f32_e32 v0, v1, v2": exactly(lambda a, b: b - a, lambda a, b: b - a),
    "v_mul_f32_e32 v0, v1, v2": exactly(lambda a, b: a * b, lambda a, b: a * b),
    "v_fma_f32 v0, v1, v2, v3": exactly(lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
    "v_fma_f32 v0, -v1, |v2|, v3": exactly(lambda a, b, c: -a * abs(b) + c, lambda a, b, c: -a * abs(b) + c),
    "v_max_f32_e32 v0, v1, v2": lambda a, b: float(np.fmax(a, b)),
    "v_min_f32_e32 v0, v1, v2": lambda a, b: float(np.fmin(a, b)),
    "v_floor_f32_e32 v0, v1": lambda a: math.copysign(math.floor(a), a) if math.isfinite(a) else a,
    "v_ceil_f32_e32 v0, v1": lambda a: math.copysign(math.ceil(a), a) if math.isfinite(a) else a,
    "v_trunc_f32_e32 v0, v1": lambda a: math.copysign(math.trunc(a), a) if math.isfinite(a) else a,
    "v_rndne_f32_e32 v0, v1": lambda a: math.copysign(round(a), a) if math.isfinite(a) else a,
    "v_mul_f32_e64 v0, v1, v2 clamp": lambda a, b: min(max(a * b, 0.0), 1.0) if a * b == a * b else 0.0,
    "v_add_f32_e64 v0, v1, -v2 mul:2": lambda a, b: float(np.float32(a) - np.float32(b)) * 2,
}


@pytest.mark.parametrize("text", FLOAT)
def test_floats(text: str) -> None:
    inputs = [floats(shift) for shift in range(count_inputs(text))]
    w = execute(text, **{f"v{number}": each for number, each in enumerate(inputs, 1)})
    with np.errstate(all="ignore"):
        expected = np.array(by_lane(FLOAT[text], *inputs)).astype(np.float32)
    # the sign of a zero that a clamp or a rounding makes is not compared
    assert bits_of(w.f[0] + np.float32(0)) == bits_of(expected + np.float32(0))


def test_a_fused_multiply_add_rounds_once() -> None:
    """Products that lie between two float32 but for the addend: two roundings give the wrong neighbour."""
    a, b = np.float32(1 + 2**-12), np.float32(1 + 2**-12)  # the product ends in 2**-24, half a unit
    for addend in (2.0**-60, -(2.0**-60), 0.0):
        w = execute(
            "v_fma_f32 v0, v1, v2, v3", **{f"v{n}": np.full(64, x, np.float32) for n, x in enumerate((a, b, addend), 1)}
        )
        assert float(w.f[0][0]) == nearest(Fraction(float(a)) * Fraction(float(b)) + Fraction(addend))


@pytest.mark.parametrize(
    "text",
    [
        "v_mad_f32 v0, v1, v2, v3",
        "v_mac_f32_e32 v0, v1, v2",
        "v_madmk_f32 v0, v1, 0x3fc00000, v3",
        "v_madak_f32 v0, v1, v2, 0x3fc00000",
    ],
)
def test_a_multiply_add_of_gfx9_rounds_twice_and_flushes_denormals(text: str) -> None:
    a, b, c = floats(0), floats(1), floats(2)
    registers = {"v0": c} if "mac" in text else {}
    w = execute(text, "gfx90a", None, v1=a, v2=b, v3=c, **registers)
    half_more = np.full(64, 1.5, np.float32)
    factors = (a, half_more if "madmk" in text else b, half_more if "madak" in text else c)
    assert bits_of(w.f[0]) == bits_of(by_lane(multiply_then_add, *factors))


def multiply_then_add(a: float, b: float, c: float) -> float:
    def flushed(value: float) -> float:
        rounded = float(np.float32(value))
        return math.copysign(0, rounded) if abs(rounded) < 2.0**-126 else rounded

    with np.errstate(all="ignore"):
        return flushed(flushed(flushed(a) * flushed(b)) + flushed(c))


APPROXIMATE: dict[str, Callable[[float], float]] = {
    "v_exp_f32_e32 v0, v1": lambda a: 2.0**a,
    "v_log_f32_e32 v0, v1": math.log2,
    "v_rcp_f32_e32 v0, v1": lambda a: 1 / a,
    "v_rsq_f32_e32 v0, v1": lambda a: 1 / math.sqrt(a),
    "v_sqrt_f32_e32 v0, v1": math.sqrt,
    "v_sin_f32_e32 v0, v1": lambda a: math.sin(2 * math.pi * a),
    "v_cos_f32_e32 v0, v1": lambda a: math.cos(2 * math.pi * a),
}


@pytest.mark.parametrize("text", APPROXIMATE)
def test_approximate_functions_are_within_one_unit(text: str) -> None:
    numbers = np.array(lanes((1.0, 0.5, 3.0, 100.0, 0.1, 7.25, 1.0001)), np.float32)
    w = execute(text, v1=numbers)
    expected = np.array([APPROXIMATE[text](number) for number in numbers.tolist()])
    assert (np.abs(w.f[0] - expected) <= np.spacing(np.abs(expected).astype(np.float32)) + 1e-15).all()


def test_approximate_functions_flush_denormals_and_know_special_values() -> None:
    numbers = np.array(lanes((2.0**-130, 0.0, -0.0, math.inf, -math.inf, math.nan, -1.0)), np.float32)

    def found(name: str) -> object:
        return execute(f"v_{name}_f32_e32 v0, v1", v1=numbers).f[0][:7].tolist()

    assert str(found("rcp")) == str([math.inf, math.inf, -math.inf, 0.0, -0.0, math.nan, -1.0])
    assert str(found("log")) == str([-math.inf, -math.inf, -math.inf, math.inf, math.nan, math.nan, math.nan])
    assert str(found("exp")) == str([1.0, 1.0, 1.0, math.inf, 0.0, math.nan, 0.5])
    assert execute("v_exp_f32_e32 v0, v1", v1=np.full(64, -127.5, np.float32)).f[0][0] == 0


CONVERSIONS: dict[str, Callable[[float], int]] = {
    "v_cvt_u32_f32_e32 v0, v1": lambda a: 0 if a != a else int(min(max(a, 0), ALL)),
    "v_cvt_i32_f32_e32 v0, v1": lambda a: 0 if a != a else int(min(max(a, -(2.0**31)), 2.0**31 - 1)),
    "v_cvt_f16_f32_e32 v0, v1": lambda a: half(a),
    "v_cvt_f32_f16_e32 v0, v1": lambda a: single(struct.unpack("<e", struct.pack("<I", single(a))[:2])[0]),
    "v_frexp_exp_i32_f32_e32 v0, v1": lambda a: math.frexp(a)[1] if math.isfinite(a) else 0,
}


def single(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def half(value: float) -> int:
    try:
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    except OverflowError:
        return 0x7C00 | (0x8000 if value < 0 else 0)


@pytest.mark.parametrize("text", CONVERSIONS)
def test_conversions(text: str) -> None:
    w = execute(text, v1=floats())
    expected = [CONVERSIONS[text](value) & ALL for value in floats().tolist()]
    nan = np.isnan(floats()) | (("f32_f16" in text) & ((floats().view(np.uint32) & 0x7FFF) > 0x7C00))  # payloads differ
    assert w.u[0][~nan].tolist() == np.array(expected)[~nan].tolist()


def test_more_conversions() -> None:
    numbers = integers()
    assert execute("v_cvt_f32_u32_e32 v0, v1", v1=numbers).u[0].tolist() == [single(x) for x in numbers.tolist()]
    signed_numbers = [single(signed(x)) for x in numbers.tolist()]
    assert execute("v_cvt_f32_i32_e32 v0, v1", v1=numbers).u[0].tolist() == signed_numbers
    for byte in range(4):
        w = execute(f"v_cvt_f32_ubyte{byte}_e32 v0, v1", v1=numbers)
        assert w.f[0].tolist() == [float(x >> 8 * byte & 255) for x in numbers.tolist()]
    w = execute("v_cvt_f64_f32_e32 v[2:3], v1\nv_cvt_f32_f64_e32 v0, v[2:3]", v1=floats())
    assert bits_of(w.f[0]) == bits_of(floats())
    a, b = np.full(64, 1 + 2**-11 + 2**-12, np.float32), np.full(64, -70000, np.float32)
    assert execute("v_cvt_pkrtz_f16_f32 v0, v1, v2", v1=a, v2=b).u[0][0] == 0xFBFF3C00
    assert execute("v_cvt_pk_f16_f32 v0, v1, v2", v1=a, v2=b).u[0][0] == 0xFC003C01
    ties = np.array([single(x) for x in (1.0, 1 + 2**-8, 1 + 3 * 2**-8, -math.inf)], np.uint32)[np.arange(64) % 4]
    rounded = execute("v_cvt_pk_bf16_f32 v0, v1, v1", v1=ties).u[0][:4].tolist()
    assert rounded == [0x3F803F80, 0x3F803F80, 0x3F823F82, 0xFF80FF80]


def test_a_multiply_add_of_float64_rounds_once() -> None:
    a, b, c = (np.full(64, value) for value in (1 + 2.0**-52, 1 - 2.0**-53, -1.0))
    registers: dict[str, np.ndarray] = {}
    for first, values in ((2, a), (4, b), (6, c)):
        registers |= {f"v{first + half}": values.view(np.uint32)[half::2] for half in range(2)}
    exact = float(Fraction(1 + 2.0**-52) * Fraction(1 - 2.0**-53) - 1)
    w = execute("v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]\nv_fmac_f64_e32 v[6:7], v[2:3], v[4:5]", **registers)
    for low, high in ((w.u[0], w.u[1]), (w.u[6], w.u[7])):
        assert np.stack([low, high], axis=1).reshape(-1).view(np.float64).tolist() == [exact] * 64
    assert exact not in ((1 + 2.0**-52) * (1 - 2.0**-53) - 1, 0)


def test_halves() -> None:
    a, b, c = (np.array(lanes((1.5, -2.0, 0.1, 65504.0, 6e-8, math.inf), shift), np.float16) for shift in range(3))
    registers = {f"v{n}": each.view(np.uint16).astype(np.uint32) for n, each in enumerate((a, b, c), 1)}
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64) * b + c).astype(np.float16)
        added = (a.astype(np.float64) + b).astype(np.float16)
    w = execute("v_fma_f16 v0, v1, v2, v3", **registers)
    assert str(w.u[0].astype(np.uint16).view(np.float16)) == str(expected)
    w = execute("v_add_f16_e32 v0, v1, v2", **registers)
    assert str(w.u[0].astype(np.uint16).view(np.float16)) == str(added)
    high = {name: value << np.uint32(16) for name, value in registers.items()}
    w = execute("v_add_f16_e64 v0, v1, v2 op_sel:[1,1,1]", v0=np.full(64, 7, np.uint32), **high)
    assert w.u[0].tolist() == [int(value) << 16 | 7 for value in added.view(np.uint16)]
    w = execute("v_pack_b32_f16 v0, v1, v2 op_sel:[0,1,0]", v1=registers["v1"], v2=high["v2"])
    assert w.u[0].tolist() == [int(x) | int(y) << 16 for x, y in zip(a.view(np.uint16), b.view(np.uint16), strict=True)]


@pytest.mark.parametrize(("arch", "expected"), [("gfx942", 0x3C00), ("gfx1100", 0xABCD3C00)])
def test_the_high_half_is_cleared_on_gfx9_only(arch: str, expected: int) -> None:
    size = 64 if arch == "gfx942" else 32
    old, one = np.full(size, 0xABCD0000, np.uint32), np.full(size, 1, np.float32)
    assert execute("v_cvt_f16_f32_e32 v0, v1", arch, v0=old, v1=one).u[0][0] == expected
    assert execute("v_fma_mixlo_f16 v0, v1, v1, 0", arch, v0=old, v1=one).u[0][0] == 0xABCD3C00
    assert execute("v_fma_mixhi_f16 v0, v1, v1, 0", arch, v0=old, v1=one).u[0][0] == 0x3C000000


def test_mixed_precision_selects_halves() -> None:
    halves = np.full(64, half(1.5) | half(-4.0) << 16, np.uint32)
    three = np.full(64, 3, np.float32)
    w = execute("v_fma_mix_f32 v0, v1, v2, v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]", v1=halves, v2=three)
    assert w.f[0][0] == -9
    w = execute("v_fma_mix_f32 v0, v1, v2, -v2 op_sel_hi:[1,0,0]", v1=halves, v2=three)
    assert w.f[0][0] == 1.5


COMPARED: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a < b or a > b,
    "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
    "nge": lambda a, b: not a >= b,
    "o": lambda a, b: not math.isnan(a) and not math.isnan(b),
    "u": lambda a, b: math.isnan(a) or math.isnan(b),
}


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_of_floats(name: str) -> None:
    inputs = [floats(), floats(2)]
    w = execute(f"v_cmp_{name}_f32_e64 s[2:3], v1, v2", v1=inputs[0], v2=inputs[1], exec=0xFFFF0000FFFFFFFF)
    expected = sum(bool(value) << lane for lane, value in enumerate(by_lane(COMPARED[name], *inputs)))
    assert w.s[2] | w.s[3] << 32 == expected & 0xFFFF0000FFFFFFFF


def test_comparisons_of_integers_and_classes() -> None:
    a, b = integers(), integers(2)
    w = execute("v_cmp_gt_i32_e32 vcc, v1, v2", v1=a, v2=b)
    assert w.scalar_mask(VCC) == sum(x << n for n, x in enumerate(by_lane(lambda x, y: signed(x) > signed(y), a, b)))
    w = execute("v_cmp_gt_u32_e32 vcc, v1, v2", v1=a, v2=b)
    assert w.scalar_mask(VCC) == sum(x << n for n, x in enumerate(by_lane(int.__gt__, a, b)))
    numbers = np.array(
        [math.nan, -math.inf, -1, -(2.0**-140), -0.0, 0.0, 2.0**-140, 1, math.inf, *[1.0] * 55], np.float32
    )
    for position in range(9):
        w = execute("v_cmp_class_f32_e64 s[2:3], v1, v2", v1=numbers, v2=np.full(64, 2 << position, np.uint32))
        assert w.s[2] & 0x1FF == 1 << position


def test_a_comparison_may_set_exec() -> None:
    for arch, operands, size in (("gfx942", "vcc, v1, v2", 64), ("gfx1100", "v1, v2", 32)):
        place = np.arange(size, dtype=np.uint32)
        five = np.full(size, 5, np.uint32)
        w = execute(f"v_cmpx_lt_u32_e32 {operands}", arch, v1=place, v2=five, exec=(1 << size) - 2, vcc=0)
        assert w.scalar_mask(126) == 0b11110
        assert w.scalar_mask(106) == (0b11110 if arch == "gfx942" else 0)


def test_carries_and_selections() -> None:
    a, b = integers(), integers(1)
    w = execute("v_add_co_u32_e32 v0, vcc, v1, v2\nv_addc_co_u32_e32 v3, vcc, v1, v2, vcc", v1=a, v2=b)
    for lane, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        low = x + y
        assert w.u[0][lane] == low & ALL
        assert w.u[3][lane] == low + (low >> 32) & ALL
    w = execute("v_sub_co_u32_e32 v0, vcc, v1, v2", v1=a, v2=b)
    assert w.scalar_mask(VCC) == sum(x << n for n, x in enumerate(by_lane(int.__lt__, a, b)))
    w = execute("v_cndmask_b32_e64 v0, v1, -v2, s[2:3]", v1=a, v2=b, s2=0b10, s3=0)
    assert w.u[0][:2].tolist() == [int(a[0]), int(b[1]) ^ 0x80000000]


@pytest.mark.parametrize(("name", "read"), [("v_mad_u64_u32", int), ("v_mad_i64_i32", signed)])
def test_multiply_and_add(name: str, read: Callable[[int], int]) -> None:
    a, b = integers(), integers(1)
    w = execute(f"{name} v[4:5], s[2:3], v1, v2, v[6:7]", v1=a, v2=b, v6=b, v7=a)
    for lane, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        total = read(x) * read(y) + (read(x) << 32) + y
        assert int(w.u[4][lane]) | int(w.u[5][lane]) << 32 == total & (1 << 64) - 1
        assert (w.s[2] | w.s[3] << 32) >> lane & 1 == total >> 64 & 1


def test_64_bits() -> None:
    a, b, c = integers(), integers(1), integers(2)
    pairs = [x | y << 32 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    wide: dict[str, Callable[[int, int], int]] = {
        "v_lshlrev_b64 v[4:5], v3, v[1:2]": lambda x, n: x << (n & 63),
        "v_lshrrev_b64 v[4:5], v3, v[1:2]": lambda x, n: x >> (n & 63),
        "v_ashrrev_i64 v[4:5], v3, v[1:2]": lambda x, n: signed(x, 64) >> (n & 63),
        "v_lshl_add_u64 v[4:5], v[1:2], v3, v[1:2]": lambda x, n: (x << (n & 7)) + x,
    }
    for text, compute in wide.items():
        w = execute(text, v1=a, v2=b, v3=c)
        found = [int(x) | int(y) << 32 for x, y in zip(w.u[4], w.u[5], strict=True)]
        assert found == [compute(x, n) & (1 << 64) - 1 for x, n in zip(pairs, c.tolist(), strict=True)], text


def test_inactive_lanes_keep_their_values() -> None:
    old = integers(3)
    w = execute("v_add_f32_e32 v0, 1.0, v1", v0=old, v1=floats(), exec=0b1010)
    assert [lane for lane in range(64) if w.u[0][lane] != old[lane]] == [1, 3]
    assert w.f[0][1] == np.float32(1) + floats()[1]


def test_constants_have_the_type_of_their_operand() -> None:
    ones = np.full(64, 1, np.float32)
    assert execute("v_add_f32_e32 v0, 0x3f800000, v1", v1=ones).f[0][0] == 2
    assert execute("v_add_u32_e32 v0, 1.0, v1", v1=np.zeros(64, np.uint32)).u[0][0] == 0x3F800000
    assert execute("v_add_u32_e32 v0, -1, v1", v1=np.zeros(64, np.uint32)).u[0][0] == ALL
    assert execute("v_add_u32_e32 v0, lit(0xffffffff), v1", v1=np.zeros(64, np.uint32)).u[0][0] == ALL
    assert execute("v_add_f16_e32 v0, 1.0, v1", v1=np.zeros(64, np.uint32)).u[0][0] == 0x3C00
    assert execute("v_add_f32_e32 v0, 1, v1", v1=np.zeros(64, np.uint32)).u[0][0] == 1  # the denormal with that bit


@pytest.mark.parametrize(("mode", "expected"), [(3, 2.0**-130), (0, 0.0), (1, 0.0), (2, 0.0)])
def test_the_denormal_mode_of_the_kernel(mode: int, expected: float) -> None:
    w = new_wave()
    w.denormals = mode
    tiny = np.full(64, 2.0**-130, np.float32)
    assert execute("v_mul_f32_e32 v0, 1.0, v1", "gfx942", w, v1=tiny).f[0][0] == expected
    small = np.full(64, 2.0**-100, np.float32)  # a denormal result of ordinary numbers
    assert (execute("v_mul_f32_e32 v0, 0x30000000, v1", "gfx942", w, v1=small).f[0][0] != 0) == bool(mode & 2)
    mixed = np.full(64, half(2.0**-24), np.uint32)  # a denormal of 16 bits, which the mode of 32 bits keeps
    assert execute("v_fma_mix_f32 v0, v1, 1.0, 0 op_sel_hi:[1,0,0]", "gfx942", w, v1=mixed).f[0][0] == 2.0**-24
    assert execute("v_fma_mix_f32 v0, v1, 1.0, 0", "gfx942", w, v1=tiny).f[0][0] == expected
    execute("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3", "gfx942", w)
    assert w.denormals == 3


@pytest.mark.parametrize("selector", [0x05040100, 0x07060302, 0x0C0D0401])
def test_a_selector_of_all_lanes_permutes_bytes_as_one_of_each(selector: int) -> None:
    values = {"v1": np.arange(64, dtype=np.uint32) * 0x01020304, "v2": np.arange(64, dtype=np.uint32) * 0x10203040}
    each = execute("v_perm_b32 v0, v1, v2, v3", **values, v3=np.full(64, selector, np.uint32))
    assert (execute(f"v_perm_b32 v0, v1, v2, {selector:#x}", **values).u[0] == each.u[0]).all()


DIVISIONS = [1.0, -3.0, 1e-40, 2e38, 1e-30, -1e30, 7e-39, 0.0, -0.0, math.inf, -math.inf, math.nan, 5.5, 2.0**-126]


def test_a_division_is_rounded_correctly() -> None:
    """The sequence that compilers emit, with refinement by fused multiply-add, for ordinary and extreme numbers."""
    steps = """
    v_div_scale_f32 v3, s[2:3], v2, v2, v1
    v_div_scale_f32 v4, vcc, v1, v2, v1
    v_rcp_f32_e32 v5, v3
    v_fma_f32 v6, -v3, v5, 1.0
    v_fma_f32 v5, v6, v5, v5
    v_mul_f32_e32 v6, v4, v5
    v_fma_f32 v7, -v3, v6, v4
    v_fma_f32 v6, v7, v5, v6
    v_fma_f32 v4, -v3, v6, v4
    v_div_fmas_f32 v4, v4, v5, v6
    v_div_fixup_f32 v0, v4, v2, v1
    """
    pairs = [(n, d) for n in DIVISIONS for d in DIVISIONS]
    mixed = [(pairs[start : start + 64] * 64)[:64] for start in range(0, len(pairs), 64)]
    for part in map(np.array, (*mixed, *([pair] * 64 for pair in pairs))):
        numerators, denominators = part[:, 0].astype(np.float32), part[:, 1].astype(np.float32)
        w = execute(steps, v1=numerators, v2=denominators)
        with np.errstate(all="ignore"):
            expected = numerators / denominators
        assert bits_of(w.f[0]) == bits_of(expected)


@pytest.mark.parametrize(
    "text",
    [
        "v_unheard_of_f32 v0, v1",
        "v_add_f32_e32 v0, src_private_base, v1",
        "v_add_f32_e64 v0, v1, v2 unknown:1",
        "v_mul_lo_u32 v0, v1, v2 clamp",
        "v_add_f32_dpp v0, v1, v2 row_dance:1",
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 3",
        "s_mov_b32 s0, v1",
        "v_add_u32_e64 v0, -v1, v2",
        "v_add_u32_e32 v0, v[1:2], v3",
        "v_lshlrev_b64 v[0:1], v2, v3",
        "v_add_f32_e64 v0, v1, v2 mul:3",
        "v_cmp_lt_f32_e64 s[2:3], v1, v2 clamp",
        "v_add_f16_dpp v0, v1, v2 row_shl:1 row_mask:0xf bank_mask:0xf",
        "v_mov_b32_dpp v0, s1 row_shl:1 row_mask:0xf bank_mask:0xf",
        "s_getreg_b32 s0, hwreg(HW_REG_MODE, 0, 4)",
        "s_swappc_b64 s[0:1], s[2:3]",
        "v_cvt_f16_f32_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_SEXT src0_sel:DWORD",
        "v_add_f32_e32 v0, v1",
    ],
)
def test_what_is_not_modelled_is_not_run(text: str) -> None:
    with pytest.raises(NotRunError, match=r"not run: ") as caught:
        execute(text)
    assert text in str(caught.value)
