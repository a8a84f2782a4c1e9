"""Instructions that load and store: scalar, global, flat, buffer and scratch memory, and atomic updates."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from wheelfactory.emulator.accesses import Elements, constant_offset, elements_of, find_place
from wheelfactory.emulator.assembly import Instruction
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.local import decode_local
from wheelfactory.emulator.memory import Array
from wheelfactory.emulator.operands import parse_operand, to_signed
from wheelfactory.emulator.readers import scalar_reader
from wheelfactory.emulator.wave import M0, Run, Wave

_VECTOR = re.compile(r"(global|flat|scratch|buffer)_(load|store)_(\w+)")
_ATOMIC = re.compile(r"(global|flat|buffer)_atomic_(\w+)")
_SCALAR = re.compile(r"s_(buffer_)?load_(dwordx?|[bui])(\d*)")


def decode_transfer(instruction: Instruction) -> Run | None:
    """Return what an instruction for memory does; None for other instructions. Raises `NotRunError`."""
    name = instruction.name
    if match := _SCALAR.fullmatch(name):
        bits = int(match[3] or 1) * (32 if match[2].startswith("dword") else 1)
        return _scalar_load(instruction, bits, is_buffer=bool(match[1]), is_signed=match[2] == "i")
    if match := _VECTOR.fullmatch(name):
        space, direction, kind = match.groups()
        elements = elements_of(instruction, kind)
        if "lds" in instruction.modifiers:
            return _load_to_local(instruction, space, elements)
        return (_load if direction == "load" else _store)(instruction, space, elements)
    if match := _ATOMIC.fullmatch(name):
        return _atomic(instruction, match[1], match[2])
    return decode_local(instruction) if name.startswith("ds_") else None


def _scalar_load(instruction: Instruction, bits: int, *, is_buffer: bool, is_signed: bool) -> Run:
    size, count = min(bits // 8, 4), max(bits // 32, 1)
    target, base, variable = (parse_operand(text) for text in instruction.operands)
    constant, read = constant_offset(instruction), scalar_reader(variable, "su32")
    if variable.kind == "constant":
        constant, read = constant + to_signed(int(variable.constant) & 0xFFFFFFFF, 32), lambda _: 0

    def run(w: Wave) -> None:
        offset = read(w) + constant
        address = (w.scalar_pair(base.index) & (1 << 48) - 1) + offset
        limit = max(0, min(count, (w.s[base.index + 2] - offset) // size)) if is_buffer else count
        if address & size - 1:
            w.global_memory.report_misaligned(address)
            address &= -size
        words = [0] * count
        if limit:
            words[:limit] = w.global_memory.load(np.array([address]), size, limit)[:, 0].tolist()
        if is_signed:
            words = [to_signed(word, bits) & 0xFFFFFFFF for word in words]
        w.s[target.index : target.index + count] = words

    return run


def _load(instruction: Instruction, space: str, elements: Elements) -> Run:
    target, *operands = (parse_operand(text) for text in instruction.operands)
    place, size, count = find_place(instruction, space, operands, elements.bytes), elements.size, elements.count

    def load(w: Wave) -> None:
        memory, addresses, lanes = place(w)
        if lanes is w.mask:
            elements.write(w, target.index, memory.load(addresses if w.full else addresses[lanes], size, count))
            return
        loaded = np.zeros((count, w.size), np.uint32)
        loaded[:, lanes] = memory.load(addresses[lanes], size, count)
        elements.write(w, target.index, loaded[:, w.mask])

    return load


def _store(instruction: Instruction, space: str, elements: Elements) -> Run:
    operands = [parse_operand(text) for text in instruction.operands]
    data = operands.pop(0 if space == "buffer" else 1).index
    place = find_place(instruction, space, operands, elements.bytes)

    def store(w: Wave) -> None:
        memory, addresses, lanes = place(w)
        memory.store(addresses[lanes], elements.size, elements.read(w, data, lanes))

    return store


def _load_to_local(instruction: Instruction, space: str, elements: Elements) -> Run:
    """Load from a buffer into local memory: M0 has the place of the first lane, and lanes follow each other."""
    operands = [parse_operand(text) for text in instruction.operands]
    if elements.size != 4 or space != "buffer":
        raise NotRunError(instruction.text)
    place = find_place(instruction, space, operands, elements.bytes)
    constant = constant_offset(instruction, "offen", "lds")

    def run(w: Wave) -> None:
        memory, addresses, lanes = place(w)
        loaded = np.zeros((elements.count, w.size), np.uint32)
        loaded[:, lanes] = memory.load(addresses[lanes], 4, elements.count)
        places = (w.s[M0] & 0xFFFF) + constant + elements.bytes * np.arange(w.size)
        w.local.store(places[w.mask], 4, loaded[:, w.mask])

    return run


def _added_as(form: Any) -> Callable[[Array, Array], Array]:
    return lambda old, new: (old.view(form) + new.view(form)).view(np.uint32)


_UPDATES: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda old, new: old + new,
    "sub": lambda old, new: old - new,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "swap": lambda _, new: new,
    "umax": np.maximum,
    "umin": np.minimum,
    "smax": lambda old, new: np.maximum(old.view(np.int32), new.view(np.int32)).view(np.uint32),
    "smin": lambda old, new: np.minimum(old.view(np.int32), new.view(np.int32)).view(np.uint32),
    "add_f32": _added_as(np.float32),
    "pk_add_f16": _added_as(np.float16),
    "cmpswap": lambda old, new: np.where(old == new[1:], new[:1], old),
}
"""How an atomic instruction changes a word: functions of the old word and of the data, of shape (words, 1)."""


def _atomic(instruction: Instruction, space: str, kind: str) -> Run:
    if kind not in _UPDATES:
        raise NotRunError(instruction.text)
    operands, modifiers = [parse_operand(text) for text in instruction.operands], instruction.modifiers
    returns = bool({"sc0", "glc"} & set(modifiers)) or "RETURN" in modifiers.get("th", "")
    target = operands.pop(0) if returns and space != "buffer" else operands[0]
    data = operands.pop(0 if space == "buffer" else 1)
    place, change = find_place(instruction, space, operands, 4), _UPDATES[kind]
    words = Elements(4, 2 if kind == "cmpswap" else 1)

    def run(w: Wave) -> None:
        memory, addresses, lanes = place(w)
        new = words.read(w, data.index, lanes)
        old = memory.update(addresses[lanes], 4, lambda lane, word: change(word, new[:, lane : lane + 1]))
        if returns:
            w.u[target.index][lanes] = old[0]

    return run
