"""Run single instructions of the emulator, and numbers that are awkward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from wheelfactory.emulator.assembly import Program, parse_instruction
from wheelfactory.emulator.decode import decode
from wheelfactory.emulator.families import family_of
from wheelfactory.emulator.memory import Array, Memory, Region
from wheelfactory.emulator.wave import VCC, Wave

TINY = 2.0**-149
"""The smallest float32 over 0."""

FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 1.5, 3.0, -2.75, 1e-3, 1e10, -1e10, 2.0**-126, -(2.0**-126), TINY, -3 * TINY, 2.0**-130),
    *(float("inf"), float("-inf"), float("nan"), 3.4028234663852886e38, -3.4028234663852886e38, 0.1, 65504.0, 70000.0),
    *(2.0**24 + 2, 8388609.0, 4294967040.0, -2147483648.0, 2147483520.0, 1 + 2.0**-23, 1 - 2.0**-24, 5.5, -7.25, 0.75),
)

INTEGERS = (
    *(0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000),
    *(0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x12345678, 0xDEADBEEF),
)


def lanes(values: Iterable[Any], shift: int = 0, size: int = 64) -> list[Any]:
    """Return values repeated over the lanes, from another place for each `shift`."""
    known = list(values)
    return [known[(lane * (shift + 1) + shift * 5) % len(known)] for lane in range(size)]


def floats(shift: int = 0, size: int = 64) -> Array:
    """Return awkward float32 for each lane."""
    return np.array(lanes(FLOATS, shift, size), np.float32)


def integers(shift: int = 0, size: int = 64) -> Array:
    """Return awkward uint32 for each lane."""
    return np.array(lanes(INTEGERS, shift, size), np.uint32)


def new_wave(arch: str = "gfx942", *, local: int = 1024, buffer: Region | None = None) -> Wave:
    """Return a wave with local memory that remembers which bytes were written."""
    wave = Wave(64 if arch.startswith("gfx9") else 32)
    found: list[str] = []
    wave.local = Memory(
        [Region("local memory", 0, np.zeros(local, np.uint8))], lambda *row: found.append(str(row)), what="local memory"
    )
    wave.global_memory = Memory([buffer] if buffer else [], lambda *row: found.append(str(row)), what="the buffers")
    wave.registers[:] = 0
    return wave


def execute(text: str, arch: str = "gfx942", wave: Wave | None = None, /, **registers: Any) -> Wave:
    """Run instructions, one a line, on a wave with these registers: ``v1`` an array, ``s2`` or ``vcc`` an integer.

    ``exec`` is a mask of lanes.
    """
    w = wave or new_wave(arch)
    for name, value in registers.items():
        if name == "exec":
            w.set_exec(value)
        elif name == "vcc":
            w.set_scalar_mask(VCC, value)
        elif name.startswith("s"):
            w.s[int(name[1:])] = value
        else:
            w.u[int(name[1:]) + (256 if name[0] == "a" else 0)][:] = np.asarray(value).view(np.uint32)
    instructions = tuple(parse_instruction(line.strip()) for line in text.strip().splitlines())
    with np.errstate(all="ignore"):
        for run in decode(Program(instructions, {}, None), family_of(arch), denormals=w.denormals):
            run(w)
    return w


def bits_of(numbers: Any) -> list[str]:
    """Return float32 as text in which every NaN is the same, and zeros keep their sign."""
    return ["nan" if number != number else float(number).hex() for number in np.asarray(numbers, np.float32)]


def nearest(exact: Fraction, precision: int = 24, smallest: int = -149) -> float:
    """Return a fraction rounded to the nearest float with `precision` bits, ties to even; no overflow."""
    if not exact:
        return 0.0
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    unit = Fraction(2) ** max(exponent - precision - 1, smallest)
    for _ in range(3):  # the exponent above is off by at most one
        if abs(exact) / unit >= 2**precision:
            unit *= 2
    return float(round(exact / unit) * unit)


def by_lane(compute: Callable[..., Any], *inputs: Array) -> list[Any]:
    """Return a Python function of each lane's numbers."""
    return [compute(*values) for values in zip(*(each.tolist() for each in inputs), strict=True)]
