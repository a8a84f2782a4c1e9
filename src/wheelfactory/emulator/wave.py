"""The registers of a wave: lanes as numpy vectors, scalar registers as Python integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import TypeAlias

import numpy as np

from wheelfactory.emulator.memory import Array, Memory

ACCUMULATORS = 256
"""Index of accumulation register a0; vector registers are before it."""

VCC, TTMP, M0, EXEC = 106, 108, 124, 126
"""Scalar registers by their number in encodings of gfx9; all families use them here."""

FLUSH_NOTHING = 3
"""Denormal mode, a field of two bits: 1 keeps denormal inputs, 2 keeps denormal results."""


class Wave:
    """Registers and memory of a wave with `size` lanes; undefined registers hold all ones, a NaN."""

    __slots__ = (
        "denormals", "f", "full", "global_memory", "i", "local", "mask", "pc", "registers", "s", "scc", "scratch",
        "scratch_size", "size", "stopped", "u",
    )  # fmt: skip

    def __init__(self, size: int) -> None:
        self.size = size
        self.registers = np.full((2 * ACCUMULATORS, size), 0xFFFFFFFF, np.uint32)
        self.u = list(self.registers)
        """Rows of the registers as uint32; `i` and `f` are the same bits as int32 and float32."""
        self.i = list(self.registers.view(np.int32))
        self.f = list(self.registers.view(np.float32))
        self.s = [0xFFFFFFFF] * 128
        self.scc = self.pc = 0
        self.stopped = False
        """Set by a barrier and by the end of the program."""
        self.denormals = FLUSH_NOTHING
        """Denormal mode of float32."""
        self.global_memory: Memory
        self.local: Memory
        self.scratch: Memory
        self.scratch_size = 0
        """Bytes of scratch memory for each lane."""
        self.set_exec((1 << size) - 1)

    def set_exec(self, lanes: int) -> None:
        """Set EXEC, the mask of active lanes."""
        self.s[EXEC], self.s[EXEC + 1] = lanes & 0xFFFFFFFF, lanes >> 32
        self.mask = to_lanes(lanes, self.size)
        self.full = lanes == (1 << self.size) - 1

    def scalar_pair(self, index: int) -> int:
        """Return the 64 bits of two scalar registers."""
        return self.s[index] | self.s[index + 1] << 32

    def scalar_mask(self, index: int) -> int:
        """Return a mask of lanes in scalar registers: one register for 32 lanes, two for 64."""
        return self.s[index] | self.s[index + 1] << 32 if self.size == 64 else self.s[index]

    def set_scalar_mask(self, index: int, lanes: int) -> None:
        """Write a mask of lanes into scalar registers."""
        if index == EXEC:
            self.set_exec(lanes)
            return
        self.s[index] = lanes & 0xFFFFFFFF
        if self.size == 64:
            self.s[index + 1] = lanes >> 32


Rows: TypeAlias = Callable[[Wave], list[Array]]
ROWS: dict[str, Rows] = {kind: attrgetter(kind[0]) for kind in ("u32", "i32", "f32")}
"""The vector registers of a wave as numbers of a kind."""

Run: TypeAlias = Callable[[Wave], None]
"""What an instruction does with a wave."""


@lru_cache(maxsize=1024)
def to_lanes(mask: int, size: int) -> Array:
    """Return a mask of lanes as booleans of shape (size,), which nobody may change."""
    packed = np.frombuffer(mask.to_bytes(size // 8, "little"), np.uint8)
    lanes = np.unpackbits(packed, bitorder="little").view(bool)
    lanes.flags.writeable = False
    return lanes


def to_mask(lanes: Array) -> int:
    """Return booleans as a mask of lanes; lane 0 is the lowest bit."""
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")
