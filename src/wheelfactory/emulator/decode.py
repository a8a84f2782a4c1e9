"""Turn each instruction of a kernel into a closure over a wave; instructions that are not modelled raise when run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from wheelfactory.emulator import scalar, vector
from wheelfactory.emulator.assembly import Instruction, Program
from wheelfactory.emulator.bits import by_truth_table
from wheelfactory.emulator.families import Family, does_nothing, name_on_gfx9
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.lanes import SPECIAL
from wheelfactory.emulator.matrix import decode_matrix
from wheelfactory.emulator.operands import parse_operand
from wheelfactory.emulator.readers import scalar_reader
from wheelfactory.emulator.step import Step, StepDecoder
from wheelfactory.emulator.table import TABLE, Semantics
from wheelfactory.emulator.transfer import decode_transfer
from wheelfactory.emulator.wave import EXEC, VCC, Run, Wave
from wheelfactory.emulator.writers import scalar_writer

_TABLES = (scalar, vector)
"""These modules fill `TABLE` when they are imported."""

_BRANCHES: dict[str, Callable[[Wave], Any]] = {
    "s_branch": lambda _: True,
    "s_cbranch_scc0": lambda w: not w.scc,
    "s_cbranch_scc1": lambda w: w.scc,
    "s_cbranch_vccz": lambda w: not w.scalar_mask(VCC),
    "s_cbranch_vccnz": lambda w: w.scalar_mask(VCC),
    "s_cbranch_execz": lambda w: not w.scalar_mask(EXEC),
    "s_cbranch_execnz": lambda w: w.scalar_mask(EXEC),
}
_MODE = re.compile(r"hwreg\(HW_REG_MODE,\s*(\d+),\s*(\d+)\)")

_DISTANCE = re.compile(r"\((\S+)-(\S+)\)(&4294967295|>>32)")

CODE_ADDRESS, CODE_STEP = 1 << 46, 4
"""Where code seems to be loaded; nothing is mapped there. In assembly text each instruction takes `CODE_STEP` bytes; in
a disassembly, code and constants have their offsets in the code object."""

END = -1
"""The program counter of a wave that has ended."""


def decode(program: Program, family: Family, *, denormals: int) -> list[Run]:
    """Return a closure for each instruction, decoded when it first runs: a launch executes few of a kernel's.

    `denormals` is the kernel descriptor's mode of float32, 3 to keep them.
    """
    modes = any("denorm_mode" in each.name or "setreg" in each.name for each in program.instructions)
    decoder = _Decoder(family, program.labels, program.addresses, flush=modes or denormals != 3)
    code: list[Run] = []
    code += [decoder.decode_later(instruction, code, place) for place, instruction in enumerate(program.instructions)]
    return code


class _Decoder:
    def __init__(self, family: Family, labels: Mapping[str, int], addresses: tuple[int, ...], *, flush: bool) -> None:
        self._family, self._labels, self._addresses, self._flush = family, labels, addresses, flush

    def decode_later(self, instruction: Instruction, code: list[Run], place: int) -> Run:
        """Return a closure that puts the decoded instruction into its place."""

        def run(w: Wave) -> None:
            if code[place] is run:
                code[place] = self.decode(instruction)
            code[place](w)

        return run

    def decode(self, instruction: Instruction) -> Run:
        """Return what an instruction does, or a function that raises `NotRunError`."""
        try:
            return self._decode(_renamed(instruction))
        except (NotRunError, ValueError, LookupError) as error:
            reason = f"{instruction.text} (line {instruction.line}: {error})"

        def refuse(_: Wave) -> None:
            raise NotRunError(reason)

        return refuse

    def _decode(self, instruction: Instruction) -> Run:
        name = instruction.name
        if "getpc" in name or "setpc" in name:
            return _decode_jump(instruction, self._addresses)
        if instruction.second:
            return self._decode_dual(instruction, instruction.second)
        if does_nothing(name):
            return lambda _: None
        if name in ("s_barrier", "s_endpgm", "s_sendmsg", "s_setreg_imm32_b32", "s_denorm_mode"):
            return _decode_control(instruction)
        if name in _BRANCHES:
            return _decode_branch(_BRANCHES[name], self._labels[instruction.operands[0]])
        if name in SPECIAL:
            if set(instruction.modifiers) - {"op_sel", "fi"}:
                raise NotRunError("modifiers")
            return SPECIAL[name](instruction)
        if name.startswith(("v_mfma", "v_wmma")):
            return decode_matrix(instruction, self._family)
        if transfer := decode_transfer(instruction):
            return transfer
        step = self._decode_step(instruction)
        compute, store = step.compute, step.store
        return lambda w: store(w, compute(w))

    def _decode_dual(self, instruction: Instruction, other: Instruction) -> Run:
        one, two = self._decode_step(instruction), self._decode_step(_renamed(other))

        def run(w: Wave) -> None:
            first, second = one.compute(w), np.copy(two.compute(w))  # a move returns the register itself
            one.store(w, first)
            two.store(w, second)

        return run

    def _decode_step(self, instruction: Instruction) -> Step:
        semantics = self._semantics(instruction)
        operands = [parse_operand(self._resolved(text)) for text in instruction.operands]
        return StepDecoder(instruction, semantics, operands, self._family, flush=self._flush).decode()

    def _resolved(self, text: str) -> str:
        """Return the number that a distance between labels stands for; other operands as they are."""
        match = _DISTANCE.fullmatch(text)
        if match is None:
            return text
        distance = CODE_STEP * (self._labels[match[1]] - self._labels[match[2]])
        return str(distance & 0xFFFFFFFF if match[3] == "&4294967295" else distance >> 32 & 0xFFFFFFFF)

    def _semantics(self, instruction: Instruction) -> Semantics:
        name = instruction.name
        if name == "v_bitop3_b32":
            table = int(instruction.modifiers["bitop3"], 0)
            return Semantics(("u32", "u32", "u32"), ("u32",), partial(by_truth_table, table))
        if name.startswith("v_s_"):  # gfx12: a vector function of scalar registers
            return Semantics(("sf32",), ("sf32",), TABLE[f"v_{name.removeprefix('v_s_')}"].compute)
        if name not in TABLE:
            raise NotRunError("unknown instruction")
        if "clamp" in instruction.modifiers and name in vector.SATURATING:
            return replace(TABLE[name], compute=vector.SATURATING[name])
        return TABLE[name]


def _renamed(instruction: Instruction) -> Instruction:
    name = name_on_gfx9(instruction.name)
    return instruction if name == instruction.name else replace(instruction, name=name)


def _decode_control(instruction: Instruction) -> Run:
    name, operands = instruction.name, instruction.operands
    if name == "s_sendmsg":
        if operands != ("sendmsg(MSG_DEALLOC_VGPRS)",):
            raise NotRunError("unknown message")
        return lambda _: None
    if name in ("s_barrier", "s_endpgm"):
        ends = name == "s_endpgm"

        def stop(w: Wave) -> None:
            w.stopped, w.pc = True, END if ends else w.pc

        return stop
    if name == "s_denorm_mode":
        first, width, value = 4, 4, int(operands[0], 0)
    else:
        match = _MODE.fullmatch(operands[0])
        if match is None:
            raise NotRunError("unknown hardware register")
        first, width, value = int(match[1]), int(match[2]), int(operands[1], 0)
    if first + width <= 4 and not value:
        return lambda _: None  # rounds to nearest, as everything here
    if first != 4 or width not in (2, 4) or (width == 4 and value >> 2 != 3):
        raise NotRunError("a mode that is not modelled")

    def set_mode(w: Wave) -> None:
        w.denormals = value & 3

    return set_mode


def _decode_jump(instruction: Instruction, addresses: tuple[int, ...]) -> Run:
    """Decode what reads or sets the program counter; `addresses`: of a disassembly (see `Program`)."""
    operand = parse_operand(instruction.operands[0])
    read, write = scalar_reader(operand, "su64"), scalar_writer(operand, "su64")
    if instruction.name == "s_getpc_b64" and addresses:
        return lambda w: write(w, CODE_ADDRESS + addresses[w.pc])
    if instruction.name == "s_getpc_b64":
        return lambda w: write(w, CODE_ADDRESS + CODE_STEP * w.pc)
    if instruction.name != "s_setpc_b64" or addresses:
        raise NotRunError("a call")

    def jump(w: Wave) -> None:
        w.pc = (read(w) - CODE_ADDRESS) // CODE_STEP

    return jump


def _decode_branch(condition: Callable[[Wave], Any], target: int) -> Run:
    def branch(w: Wave) -> None:
        if condition(w):
            w.pc = target

    return branch
