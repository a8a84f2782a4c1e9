"""Read the text of a kernel into instructions with operands and modifiers: LLVM's assembly, or its disassembly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from wheelfactory.emulator.findings import NotRunError

_TOKEN = re.compile(r"(?:\([^)]*\)|\[[^\]]*\]|\|[^|]*\||[^\s,(\[|])+")
_MODIFIER = re.compile(r"([a-z]\w*):(.+)")
_LABEL = re.compile(r"(?:[0-9a-f]+ <)?([\w.$]+)>?:")
_INSTRUCTION = re.compile(r"\t([a-z]\w.*?)\s*(?://\s([0-9A-F]+):.*)?")
_TARGET = re.compile(r"\.L\S+|L[0-9]+")
"""Labels inside of a kernel: those of the assembly text, and what the disassembly calls the targets of branches."""
_SUFFIX = re.compile(r"_(e32|e64|e64_dpp|dpp|dpp8|sdwa)$")
_FLAGS = frozenset(
    ("clamp", "dlc", "gds", "glc", "idxen", "lds", "nt", "offen", "row_half_mirror", "row_mirror", "sc0", "sc1", "slc")
)

PRELOAD_HEADER = 256
"""Bytes that hardware skips which preloads arguments."""

_HEADER_ENDS = ("\t.p2align\t8", "\t.fill 63, 4, ")
"""What fills the first 256 bytes of a kernel with preloaded arguments; Triton 3.2 has the second, behind a trap."""


@dataclass(frozen=True)
class Instruction:
    """An instruction; `name` is without the suffix of its encoding."""

    name: str
    operands: tuple[str, ...] = ()
    modifiers: Mapping[str, str] = field(default_factory=dict)
    """For example ``{"offset": "16", "glc": ""}``; the encoding ``sdwa`` or ``dpp`` is one too."""
    text: str = ""
    line: int = 0
    second: Instruction | None = None
    """The other half of a dual instruction."""


@dataclass(frozen=True)
class Program:
    """The instructions of a kernel; `labels` are positions in them."""

    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    preloaded: int | None
    """Where hardware starts that preloads arguments into registers: after the first 256 bytes."""
    addresses: tuple[int, ...] = ()
    """Of each instruction, in bytes, in a disassembly."""


def read_program(text: str, kernel: str) -> Program:
    """Return the instructions of a kernel. Raises `NotRunError` if they are not in the text.

    The text is LLVM's assembly, or the output of ``llvm-objdump -d --symbolize-operands``.
    """
    instructions: list[Instruction] = []
    addresses: list[int] = []
    labels: dict[str, int] = {}
    inside, preloaded = False, None
    for number, row in enumerate(text.splitlines(), 1):
        label = _LABEL.match(row)
        if label and not _TARGET.fullmatch(label[1]):
            inside = label[1] == kernel
        elif label and label[1].startswith(".Lfunc_end"):
            inside = False
        elif label and inside:
            labels[label[1]] = len(instructions)
        elif inside and row.startswith(_HEADER_ENDS):
            preloaded = preloaded if preloaded is not None else len(instructions)
        elif inside and (match := _INSTRUCTION.fullmatch(row.partition(";")[0].rstrip())):
            instructions.append(parse_instruction(match[1], number))
            addresses += [int(match[2], 16)] if match[2] else []
    if not instructions:
        raise NotRunError(f"{kernel}: no instructions in the text of the code")
    if addresses and addresses[0] + PRELOAD_HEADER in addresses:
        preloaded = addresses.index(addresses[0] + PRELOAD_HEADER)
    return Program(tuple(instructions), labels, preloaded, tuple(addresses))


def parse_instruction(text: str, line: int = 0) -> Instruction:
    """Parse an instruction, for example ``v_add_f32_e32 v0, s1, v2``."""
    first, _, second = text.partition(" :: ")
    name, _, rest = first.strip().partition(" ")
    operands: list[str] = []
    modifiers: dict[str, str] = {}
    for token in _TOKEN.findall(rest):
        if match := _MODIFIER.fullmatch(token):
            modifiers[match[1]] = match[2]
        elif token in _FLAGS:
            modifiers[token] = ""
        else:
            operands.append(token)
    suffix = _SUFFIX.search(name)
    if suffix and "sdwa" in suffix[1]:
        modifiers["sdwa"] = ""
    if suffix and "dpp" in suffix[1]:
        modifiers["dpp"] = ""
    base = (name[: suffix.start()] if suffix else name).replace("v_dual_", "v_")
    other = parse_instruction(second, line) if second else None
    return Instruction(base, tuple(operands), modifiers, text, line, other)
