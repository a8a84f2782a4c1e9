"""The operands in the text of an instruction: registers, constants, and modifiers such as a sign."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from functools import cache

from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.wave import ACCUMULATORS, EXEC, M0, TTMP, VCC

_REGISTER = re.compile(r"(v|a|s|ttmp)(?:(\d+)|\[(\d+):(\d+)\])")
_NAMED = {
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "exec": (EXEC, 2), "exec_lo": (EXEC, 1),
    "exec_hi": (EXEC + 1, 1), "m0": (M0, 1), "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1),
    "flat_scratch_hi": (103, 1),
}  # fmt: skip
_FIRST = {"v": 0, "a": ACCUMULATORS, "s": 0, "ttmp": TTMP}


@dataclass(frozen=True)
class Operand:
    """A parsed operand: ``v`` vector or ``s`` scalar registers, a ``constant``, ``scc``, or ``off``."""

    kind: str
    index: int = 0
    count: int = 1
    constant: int | float = 0
    negative: bool = False
    absolute: bool = False
    signed: bool = False
    """Whether a part of a register is extended with its sign."""
    high: bool | None = None
    """The half of a register, if the text names it: ``v1.h``."""


@cache
def parse_operand(text: str) -> Operand:
    """Parse an operand such as ``-|v1|``, ``s[2:3]``, ``vcc`` or ``0x3f800000``. Raises `NotRunError`."""
    modifiers: dict[str, bool] = {}
    for opening, closing, name in (("neg(", ")", "negative"), ("sext(", ")", "signed"), ("|", "|", "absolute")):
        if name == "absolute" and text.startswith("-") and not text[1:2].isdigit():
            modifiers["negative"], text = True, text[1:]
        if text.startswith(opening):
            modifiers[name], text = True, text[len(opening) : -len(closing)]
    if text.endswith((".l", ".h")):
        modifiers["high"], text = text.endswith("h"), text[:-2]
    bare = _parse_bare(text)
    return replace(bare, **modifiers) if modifiers else bare  # type: ignore[arg-type]  # fields of Operand, by name


def _parse_bare(text: str) -> Operand:
    if match := _REGISTER.fullmatch(text):
        kind, one, first, last = match.groups()
        start, stop = (int(one), int(one)) if one else (int(first), int(last))
        return Operand("v" if kind in "va" else "s", _FIRST[kind] + start, stop - start + 1)
    if text in _NAMED:
        return Operand("s", *_NAMED[text])
    if text in ("off", "null"):
        return Operand("off")
    if text in ("scc", "src_scc"):
        return Operand("scc")
    if text.startswith("lit("):  # LLVM 22: a constant of 32 bits that would also fit into the instruction
        text = text[len("lit(") : -1]
    try:
        return Operand("constant", constant=float(text) if "." in text else int(text, 0))
    except ValueError:
        raise NotRunError(f"operand {text}") from None


def constant_bits(value: float, size: int) -> int:
    """Return the bits of a constant in an operand of `size` bytes; a text with a point is a float of that size."""
    if isinstance(value, float):
        code, integer = {2: ("e", "H"), 4: ("f", "I"), 8: ("d", "Q")}[size]
        return int(struct.unpack(f"<{integer}", struct.pack(f"<{code}", value))[0])
    return value & (1 << 8 * size) - 1


def to_signed(value: int, bits: int) -> int:
    """Return bits as a signed number."""
    return value - (1 << bits) if value >> bits - 1 else value
