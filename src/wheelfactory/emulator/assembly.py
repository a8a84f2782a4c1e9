"""Read the assembly text of a kernel, as LLVM writes it, into instructions with operands and modifiers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from wheelfactory.emulator.findings import NotRunError

_TOKEN = re.compile(r"(?:\([^)]*\)|\[[^\]]*\]|\|[^|]*\||[^\s,(\[|])+")
_MODIFIER = re.compile(r"([a-z]\w*):(.+)")
_LABEL = re.compile(r"([\w.$]+):")
_INSTRUCTION = re.compile(r"\t([a-z]\w+)(?:\s+(.*))?")
_SUFFIX = re.compile(r"_(e32|e64|e64_dpp|dpp|dpp8|sdwa)$")
_FLAGS = frozenset(
    ("clamp", "dlc", "gds", "glc", "idxen", "lds", "nt", "offen", "row_half_mirror", "row_mirror", "sc0", "sc1", "slc")
)

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


def read_program(text: str, kernel: str) -> Program:
    """Return the instructions of a kernel. Raises `NotRunError` if they are not in the text."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    inside, preloaded = False, None
    for number, row in enumerate(text.splitlines(), 1):
        if label := _LABEL.match(row):
            inside = inside or label[1] == kernel
            if inside and label[1].startswith(".Lfunc_end"):
                break
            labels[label[1]] = len(instructions)
        elif inside and row.startswith(_HEADER_ENDS):
            preloaded = preloaded if preloaded is not None else len(instructions)
        elif inside and (match := _INSTRUCTION.match(row.partition(";")[0].rstrip())):
            instructions.append(parse_instruction(match[0].strip(), number))
    if not instructions:
        raise NotRunError(f"{kernel}: no instructions in the assembly text")
    return Program(tuple(instructions), labels, preloaded)


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
