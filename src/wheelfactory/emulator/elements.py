"""The elements that an instruction loads or stores for each lane, between memory and registers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array
from wheelfactory.emulator.numbers import HIGH, LOW, U32
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
        values: Array = w.registers[index : index + self.count][:, lanes]
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


ELEMENTS = {
    "dword": Elements(4),
    "dwordx2": Elements(4, 2),
    "dwordx3": Elements(4, 3),
    "dwordx4": Elements(4, 4),
    "byte": Elements(1),
    "ubyte": Elements(1),
    "sbyte": Elements(1, rest="sign"),
    "short": Elements(2),
    "ushort": Elements(2),
    "sshort": Elements(2, rest="sign"),
    "short_d16": Elements(2, rest="low"),
    "short_d16_hi": Elements(2, rest="high"),
    "byte_d16_hi": Elements(1, rest="high"),
    "ubyte_d16": Elements(1, rest="low"),
    "ubyte_d16_hi": Elements(1, rest="high"),
    "b8": Elements(1),
    "b16": Elements(2),
    "b32": Elements(4),
    "b64": Elements(4, 2),
    "b96": Elements(4, 3),
    "b128": Elements(4, 4),
    "u8": Elements(1),
    "i8": Elements(1, rest="sign"),
    "u16": Elements(2),
    "i16": Elements(2, rest="sign"),
    "b8_d16_hi": Elements(1, rest="high"),
    "b16_d16_hi": Elements(2, rest="high"),
    "u8_d16": Elements(1, rest="low"),
    "u8_d16_hi": Elements(1, rest="high"),
    "u16_d16": Elements(2, rest="low"),
    "u16_d16_hi": Elements(2, rest="high"),
}
"""By the end of the name of an instruction."""


def elements_of(instruction: Instruction, kind: str) -> Elements:
    """Return the elements of an instruction. Raises `NotRunError` if its kind is unknown."""
    if kind not in ELEMENTS:
        raise NotRunError(instruction.text)
    return ELEMENTS[kind]


def constant_offset(instruction: Instruction, *known: str) -> int:
    """Return the constant offset. Raises `NotRunError` for modifiers other than `known` and those of caches."""
    if set(instruction.modifiers) - _CACHING - {"offset", *known}:
        raise NotRunError(instruction.text)
    return int(instruction.modifiers.get("offset", "0"), 0)
