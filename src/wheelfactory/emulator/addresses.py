"""Where vector instructions access memory: global, flat and scratch addresses, and raw buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.elements import constant_offset
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array, Memory
from wheelfactory.emulator.operands import Operand, to_signed
from wheelfactory.emulator.readers import scalar_reader
from wheelfactory.emulator.wave import Wave

Place: TypeAlias = Callable[[Wave], tuple[Memory, Array, Array]]
"""Returns a memory, the addresses of all lanes as int64, and the lanes that access it, as booleans."""

SCRATCH_ADDRESS = 1 << 47
"""Where the scratch buffer of older families begins; no process has memory there."""

_ADD_THREAD_ID = 1 << 23
"""Bit of the last word of a buffer's descriptor: each lane has its own copy."""

_LANES = np.arange(64)


def find_place(instruction: Instruction, space: str, operands: list[Operand], size: int) -> Place:
    """Return where an instruction accesses `size` bytes for each lane; `operands` are those of the address.

    `space` is global, flat, scratch or buffer. Raises `NotRunError`.
    """
    if space == "buffer":
        return _buffer_place(instruction, operands, size)
    constant = constant_offset(instruction)
    vector, scalar = operands[0], operands[1] if len(operands) > 1 else Operand("off")
    low, high, index = vector.index, vector.index + 1, scalar.index
    if space == "scratch":

        def scratch_place(w: Wave) -> tuple[Memory, Array, Array]:
            start = constant + (to_signed(w.s[index], 32) if scalar.kind == "s" else 0)
            offset = w.i[low].astype(np.int64) if vector.kind == "v" else np.zeros(w.size, np.int64)
            return w.scratch, _in_scratch(w, offset + start, size), w.mask

        return scratch_place
    if scalar.kind == "s":
        return lambda w: (w.global_memory, w.u[low].astype(np.int64) + (w.scalar_pair(index) + constant), w.mask)

    def place(w: Wave) -> tuple[Memory, Array, Array]:
        return w.global_memory, w.u[low].astype(np.int64) + (w.u[high].astype(np.int64) << 32) + constant, w.mask

    return place


def _in_scratch(w: Wave, offset: Array, size: int) -> Array:
    """Return where the scratch memory of each lane has an offset; an offset outside of it becomes a negative one."""
    inside = (offset >= 0) & (offset + size <= w.scratch_size)
    return np.where(inside, _LANES[: w.size] * w.scratch_size + offset, -1 - np.abs(offset))


def _buffer_place(instruction: Instruction, operands: list[Operand], size: int) -> Place:
    """Return where an instruction accesses a raw buffer; lanes outside of it neither load nor store."""
    vector, descriptor, scalar = operands
    constant = constant_offset(instruction, "offen", "lds")
    read_start = scalar_reader(scalar, "su32")
    offen, index = "offen" in instruction.modifiers, descriptor.index

    def place(w: Wave) -> tuple[Memory, Array, Array]:
        records, flags = w.s[index + 2], w.s[index + 3]
        base, start = w.scalar_pair(index) & (1 << 48) - 1, read_start(w)
        offset = (w.u[vector.index].astype(np.int64) if offen else np.zeros(w.size, np.int64)) + constant
        if base >= SCRATCH_ADDRESS and flags & _ADD_THREAD_ID:
            # the lanes of a wave share the scalar offset, so it counts the bytes of all of them
            return w.scratch, _in_scratch(w, offset + (base - SCRATCH_ADDRESS + start // w.size), size), w.mask
        if w.s[index + 1] >> 16 & 0x3FFF or flags & _ADD_THREAD_ID:
            raise NotRunError(f"{instruction.text} on a structured buffer")
        offset = offset + start
        lanes = w.mask & (offset + size <= records)
        if size > 4 and np.count_nonzero(w.mask & ~lanes & (offset + 4 <= records)):
            raise NotRunError(f"{instruction.text} across the end of its buffer")
        return w.global_memory, base + offset, lanes

    return place
