"""What an instruction for memory accesses: its elements for each lane, and where they are.

Places are global, flat and scratch addresses, and raw buffers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array, Memory
from wheelfactory.emulator.operands import Operand, to_signed
from wheelfactory.emulator.readers import scalar_reader
from wheelfactory.emulator.table import HIGH, LOW, U32
from wheelfactory.emulator.wave import Wave

_CACHING = frozenset({"glc", "slc", "dlc", "sc0", "sc1", "nt", "scope", "th"})
"""Modifiers that only concern caches, except in atomic instructions."""


@dataclass(frozen=True)
class Elements:
    """`count` elements of `size` bytes; one smaller than a register fills it with `rest`.

    `rest` is ``zeros``, ``sign``, or ``low`` or ``high`` if only that half of the register takes part.
    """

    size: int
    count: int = 1
    rest: str = "zeros"

    @property
    def bytes(self) -> int:
        """Bytes of all elements of a lane."""
        return self.size * self.count

    def read(self, w: Wave, index: int, lanes: Array) -> Array:
        """Return what the lanes store, as uint32 of shape (count, lanes)."""
        values: Array = w.registers[index : index + self.count]
        if not (w.full and lanes is w.mask):
            values = values[:, lanes]
        return values >> U32(16) if self.rest == "high" else values

    def write(self, w: Wave, index: int, loaded: Array) -> None:
        """Write what the active lanes loaded into their registers."""
        if self.rest == "sign":
            unused = 32 - 8 * self.size
            loaded = ((loaded << U32(unused)).view(np.int32) >> np.int32(unused)).view(U32)
        elif self.rest == "high":
            loaded = w.u[index][w.mask] & LOW | loaded << U32(16)
        elif self.rest == "low":
            loaded = w.u[index][w.mask] & HIGH | loaded
        if w.full:
            w.registers[index : index + len(loaded)] = loaded
        else:
            w.registers[index : index + len(loaded), w.mask] = loaded


_OLD_NAMES = {"byte": "b8", "short": "b16", "ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16"}
_OLD_NAMES |= {"dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128"}
_KIND = re.compile(r"(d16_)?(hi_)?([a-z]+|[bui]\d+|dwordx\d)(_d16)?(_hi)?")


def elements_of(instruction: Instruction, kind: str) -> Elements:
    """Return the elements that the end of a name stands for: ``b64``, ``dwordx2``, ``u16_d16_hi``, ``d16_hi_b16``.

    Raises `NotRunError` if it is unknown.
    """
    match = _KIND.fullmatch(kind)
    name = _OLD_NAMES.get(match[3], match[3]) if match else ""
    if match is None or name not in _OLD_NAMES.values():
        raise NotRunError(instruction.text)
    bits = int(name[1:])
    rest = "sign" if name[0] == "i" else "zeros"
    if match[1] or match[4]:
        rest = "high" if match[2] or match[5] else "low"
    return Elements(min(4, bits // 8), max(1, bits // 32), rest)


def constant_offset(instruction: Instruction, *known: str) -> int:
    """Return the constant offset. Raises `NotRunError` for modifiers other than `known` and those of caches."""
    if set(instruction.modifiers) - _CACHING - {"offset", *known}:
        raise NotRunError(instruction.text)
    return int(instruction.modifiers.get("offset", "0"), 0)


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
