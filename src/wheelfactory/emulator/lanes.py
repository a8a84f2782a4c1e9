"""Move data between lanes, and between the parts of a register: DPP, SDWA, swizzles, permutations, single lanes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array
from wheelfactory.emulator.operands import parse_operand
from wheelfactory.emulator.readers import Source, scalar_reader, vector_reader
from wheelfactory.emulator.table import U32
from wheelfactory.emulator.wave import Run, Wave
from wheelfactory.emulator.writers import Writer, scalar_writer, write_row

_PERMUTATIONS: dict[str, Callable[[Array, int], Array]] = {
    "row_shl": lambda lane, n: np.where((lane & 15) + n < 16, lane + n, -1),
    "row_shr": lambda lane, n: np.where((lane & 15) >= n, lane - n, -1),
    "row_ror": lambda lane, n: lane & ~15 | (lane - n & 15),
    "row_share": lambda lane, n: lane & ~15 | n,
    "row_newbcast": lambda lane, n: lane & ~15 | n,
    "row_xmask": lambda lane, n: lane ^ n,
    "row_bcast": lambda lane, n: np.where(lane > n, (lane & ~n) - 1, -1),
    "row_mirror": lambda lane, _: lane ^ 15,
    "row_half_mirror": lambda lane, _: lane ^ 7,
}
"""The lane that each lane reads; -1 for none."""

DPP_MODIFIERS = (*_PERMUTATIONS, "quad_perm", "dpp8", "row_mask", "bank_mask", "bound_ctrl", "fi", "dpp")

_PART = re.compile(r"(BYTE|WORD)_([0-3])")


def integers(text: str) -> list[int]:
    """Return the numbers of a modifier such as ``[2,3,0,1]``."""
    return [int(part, 0) for part in text.strip("[]").split(",")]


class Permutation:
    """The modifiers of DPP: which lane each lane reads, and which lanes are written."""

    def __init__(self, modifiers: Mapping[str, str], size: int) -> None:
        lane = np.arange(size)
        self._from = self._sources(modifiers, lane)
        rows, banks = (int(modifiers.get(name, "0xf"), 0) for name in ("row_mask", "bank_mask"))
        self._enabled = (rows >> (lane >> 4) & 1 & banks >> ((lane & 15) >> 2)).astype(bool)
        self._zeros = modifiers.get("bound_ctrl") in ("1", "0")  # both spellings of LLVM set the bit
        self._inactive = modifiers.get("fi") == "1"

    @staticmethod
    def _sources(modifiers: Mapping[str, str], lane: Any) -> Array:
        for name, group in (("quad_perm", 3), ("dpp8", 7)):
            if name in modifiers:
                return np.array(lane & ~group | np.array(integers(modifiers[name]))[lane & group])
        for name, permute in _PERMUTATIONS.items():
            if name in modifiers:
                return permute(lane, int(modifiers[name] or "0", 0))
        raise NotRunError("an unknown DPP control")

    def _readable(self, w: Wave) -> Array:
        return (self._from >= 0) & (self._inactive | w.mask[self._from])

    def read(self, w: Wave, values: Array) -> Array:
        """Return the values that the lanes read."""
        return np.where(self._readable(w), values[self._from], U32(0))

    def writing(self, write: Writer) -> Writer:
        """Return a writer that leaves out lanes without a source, and rows and banks that are masked off."""

        def write_some(w: Wave, value: Any) -> None:
            mask, full = w.mask, w.full
            w.mask = mask & self._enabled & (self._zeros | self._readable(w))
            w.full = bool(w.mask.all())
            write(w, value)
            w.mask, w.full = mask, full

        return write_some


def _place_of(part: str) -> tuple[int, int]:
    """Return the first bit and the number of bits of a part of a register."""
    match = _PART.fullmatch(part)
    if match is None:
        raise NotRunError(part)
    bits = 8 if match[1] == "BYTE" else 16
    return bits * int(match[2]), bits


def select_part(name: str, *, signed: bool) -> Callable[[Wave, Array], Array] | None:
    """Return a function that extracts a part of a register, as SDWA does for operands; None for all of it."""
    if name == "DWORD":
        return None
    shift, bits = _place_of(name)
    left, right = U32(32 - bits - shift), U32(32 - bits)
    if signed:
        return lambda _, raw: ((raw << left).view(np.int32) >> np.int32(32 - bits)).view(U32)
    return lambda _, raw: raw << left >> right


def write_part(index: int, name: str, unused: str) -> Callable[[Wave, Array], Array]:
    """Return a function that puts a result into a part of a register, as SDWA does."""
    shift, bits = _place_of(name)
    part = U32((1 << bits) - 1 << shift)
    if unused.endswith("SEXT"):
        raise NotRunError(f"dst_unused:{unused}")
    if unused.endswith("PRESERVE"):
        return lambda w, value: w.u[index] & ~part | value << U32(shift) & part
    return lambda _, value: value << U32(shift) & part


def _readfirstlane(instruction: Instruction) -> Run:
    write = scalar_writer(parse_operand(instruction.operands[0]), "su32")
    read = vector_reader(parse_operand(instruction.operands[1]), "u32", Source())
    return lambda w: write(w, np.broadcast_to(read(w), w.size)[int(w.mask.argmax())])


def _readlane(instruction: Instruction) -> Run:
    write = scalar_writer(parse_operand(instruction.operands[0]), "su32")
    index = parse_operand(instruction.operands[1]).index
    lane = scalar_reader(parse_operand(instruction.operands[2]), "su32")
    return lambda w: write(w, w.u[index][lane(w) % w.size])


def _writelane(instruction: Instruction) -> Run:
    index = parse_operand(instruction.operands[0]).index
    value, lane = (scalar_reader(parse_operand(text), "su32") for text in instruction.operands[1:])

    def run(w: Wave) -> None:
        w.u[index][lane(w) % w.size] = value(w)

    return run


def _swap(instruction: Instruction) -> Run:
    first, second = (parse_operand(text).index for text in instruction.operands)

    def run(w: Wave) -> None:
        value = w.u[first].copy()
        write_row(w, first, w.u[second])
        write_row(w, second, value)

    return run


def _swap_rows(instruction: Instruction) -> Run:
    """Swap the upper half of each row pair of the first register with the lower half of the second."""
    first, second = (parse_operand(text).index for text in instruction.operands)
    step = int(instruction.name.removeprefix("v_permlane").removesuffix("_swap_b32"))

    def run(w: Wave) -> None:
        if not w.full:
            raise NotRunError(f"{instruction.text} with inactive lanes")
        for start in range(0, w.size, 2 * step):
            upper, lower = slice(start + step, start + 2 * step), slice(start, start + step)
            value = w.u[first][upper].copy()
            w.u[first][upper], w.u[second][lower] = w.u[second][lower], value

    return run


def _permlane(instruction: Instruction) -> Run:
    """Read a lane of the same row of 16 lanes, or of the other one; the selectors have four bits for each lane."""
    target, source = (parse_operand(text).index for text in instruction.operands[:2])
    low, high = (scalar_reader(parse_operand(text), "su32") for text in instruction.operands[2:])
    other = 16 if "permlanex16" in instruction.name else 0
    inactive = instruction.modifiers.get("op_sel", "[0,0]")[1] == "1"

    def run(w: Wave) -> None:
        lane = np.arange(w.size)
        selectors = low(w) | high(w) << 32
        places = (lane & ~15 ^ other) | np.array([selectors >> 4 * position & 15 for position in range(16)])[lane & 15]
        if not inactive and not w.mask[places][w.mask].all():
            raise NotRunError(f"{instruction.text} from inactive lanes")
        write_row(w, target, w.u[source][places])

    return run


SPECIAL: dict[str, Callable[[Instruction], Run]] = {
    "v_readfirstlane_b32": _readfirstlane,
    "v_readlane_b32": _readlane,
    "v_writelane_b32": _writelane,
    "v_swap_b32": _swap,
    "v_permlane16_swap_b32": _swap_rows,
    "v_permlane32_swap_b32": _swap_rows,
    "v_permlane16_b32": _permlane,
    "v_permlanex16_b32": _permlane,
}
"""Instructions whose lanes are not computed by themselves."""
