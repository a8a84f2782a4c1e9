"""The elements that an instruction loads or stores for each lane, between memory and registers."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array
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
