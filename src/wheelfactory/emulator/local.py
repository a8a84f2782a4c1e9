"""Instructions for the local memory of a work-group, and those that move data between lanes on the same path."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from wheelfactory.emulator.accesses import Elements, constant_offset, elements_of
from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.memory import Array
from wheelfactory.emulator.operands import parse_operand
from wheelfactory.emulator.table import U32
from wheelfactory.emulator.wave import Run, Wave
from wheelfactory.emulator.writers import write_row

_LANES = np.arange(64)
_TRANSFER = re.compile(r"ds_(read|write)_(\w+)")
_PAIR = re.compile(r"ds_(read|write)2(st64)?_(b32|b64)")
_SWIZZLE = re.compile(r"swizzle\((SWAP|REVERSE),(\d+)\)")


def decode_local(instruction: Instruction) -> Run:
    """Return what an instruction ``ds_...`` does. Raises `NotRunError`."""
    if instruction.name in _MOVES:
        return _MOVES[instruction.name](instruction)
    if match := _PAIR.fullmatch(instruction.name):
        elements, unit = Elements(4, 1 if match[3] == "b32" else 2), 64 if match[2] else 1
        constant_offset(instruction, "offset0", "offset1")
        offsets = [
            elements.bytes * unit * int(instruction.modifiers.get(name, "0"), 0) for name in ("offset0", "offset1")
        ]
    elif match := _TRANSFER.fullmatch(instruction.name):
        elements, offsets = elements_of(instruction, match[2]), [constant_offset(instruction)]
    else:
        raise NotRunError(instruction.text)
    return (_read if match[1] == "read" else _write)(instruction, elements, offsets)


def _addresses(first: Array, offset: int) -> Array:
    """Return the addresses of lanes, which wrap at 32 bits: compilers subtract in a register what the offset adds.

    Source: LLVM, whose SelectionDAG folds an offset into a base that may be negative, except on Southern Islands.
    """
    places: Array = (first + U32(offset)).astype(np.int64)
    return places


def _read(instruction: Instruction, elements: Elements, offsets: list[int]) -> Run:
    target, place = (parse_operand(text).index for text in instruction.operands)
    size, count = elements.size, elements.count

    def read(w: Wave) -> None:
        at = w.u[place] if w.full else w.u[place][w.mask]
        parts = [w.local.load(_addresses(at, offset), size, count) for offset in offsets]
        elements.write(w, target, np.concatenate(parts) if len(parts) > 1 else parts[0])

    return read


def _write(instruction: Instruction, elements: Elements, offsets: list[int]) -> Run:
    place, *sources = (parse_operand(text).index for text in instruction.operands)

    def write(w: Wave) -> None:
        at = w.u[place] if w.full else w.u[place][w.mask]
        for offset, source in zip(offsets, sources, strict=True):
            w.local.store(_addresses(at, offset), elements.size, elements.read(w, source, w.mask))

    return write


def _bpermute(instruction: Instruction) -> Run:
    """Each lane reads the lane that it names, in bytes of a register; inactive lanes give 0."""
    target, place, source = (parse_operand(text).index for text in instruction.operands)
    constant = U32(constant_offset(instruction))

    def run(w: Wave) -> None:
        lanes = (w.u[place] + constant >> U32(2)) % U32(w.size)
        write_row(w, target, np.where(w.mask, w.u[source], U32(0))[lanes])

    return run


def _permute(instruction: Instruction) -> Run:
    """Each lane writes to the lane that it names."""
    target, place, source = (parse_operand(text).index for text in instruction.operands)
    constant = U32(constant_offset(instruction))

    def run(w: Wave) -> None:
        moved: Array = np.zeros(w.size, np.uint32)
        moved[((w.u[place] + constant >> U32(2)) % U32(w.size))[w.mask]] = w.u[source][w.mask]
        write_row(w, target, moved)

    return run


def _swizzle(instruction: Instruction) -> Run:
    """Each lane reads a lane of its group of 4 or 32, by a pattern."""
    target, source = (parse_operand(text).index for text in instruction.operands)
    pattern = instruction.modifiers.get("offset", "0")
    if match := _SWIZZLE.fullmatch(pattern):
        bits = (int(match[2]) - (match[1] == "REVERSE")) << 10 | 0x1F
    else:
        bits = int(pattern, 0)
    if bits & 0x8000:
        places = _LANES & ~3 | np.array([bits >> 2 * lane & 3 for lane in range(4)])[_LANES & 3]
    else:
        places = _LANES & 32 | ((_LANES & bits & 31 | bits >> 5 & 31) ^ bits >> 10 & 31)

    def run(w: Wave) -> None:
        lanes = places[: w.size]
        write_row(w, target, np.where(w.mask[lanes], w.u[source][lanes], U32(0)))

    return run


def _read_transposed(instruction: Instruction) -> Run:
    """Read four elements of 16 bits for each lane, and transpose them among the 16 lanes of a row."""
    target, place = (parse_operand(text).index for text in instruction.operands)
    constant = constant_offset(instruction)

    def run(w: Wave) -> None:
        if not w.full:
            raise NotRunError(f"{instruction.text} with inactive lanes")
        words = w.local.load(_addresses(w.u[place], constant), 4, 2)
        halves = np.ascontiguousarray(words.T).view(np.uint16)  # lane, element
        lane = np.arange(w.size)
        parts = [halves[lane & ~15 | 4 * element + (lane >> 2 & 3), lane & 3].astype(np.uint32) for element in range(4)]
        w.u[target][:] = parts[0] | parts[1] << U32(16)
        w.u[target + 1][:] = parts[2] | parts[3] << U32(16)

    return run


_MOVES: dict[str, Callable[[Instruction], Run]] = {
    "ds_bpermute_b32": _bpermute,
    "ds_permute_b32": _permute,
    "ds_swizzle_b32": _swizzle,
    "ds_read_b64_tr_b16": _read_transposed,
}
