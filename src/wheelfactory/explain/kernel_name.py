"""The name of a generated kernel -> what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wheelfactory.core.gpus import FAMILIES
from wheelfactory.core.kernel_name import parse_kernel_name
from wheelfactory.explain.name_parts import (
    FIXED,
    LONGEST_FIRST,
    OPERATIONS,
    TYPES,
    block_tile,
    matrix_instruction,
    padding,
    warps,
)

_SIZES = re.compile(r"([brw])(\d+(?:x\d+)*)")
_OCCUPANCY = re.compile(r"o(-?\d+)")
_LONGEST_QUERY = re.compile(r"maxq(\d+)")


@dataclass(frozen=True)
class Part:
    """A piece of a name and what it means."""

    text: str
    meaning: str


@dataclass(frozen=True)
class KernelName:
    """What the name of a generated source says of its kernel."""

    name: str
    direction: str
    """``forward`` or ``backward``."""
    operation: str
    """What it computes, in words."""
    head_dim: str
    """``128``, or ``192x128`` where V has another; empty for the file that selects kernels."""
    type: str
    """``bf16``; empty for the file that selects kernels."""
    mode: str
    """``batch`` or ``group``; empty if the name does not say."""
    arch: str
    """``gfx9``: the family it is made for; empty if it is for all (flash-attn up to 2.8.3)."""
    parts: tuple[Part, ...]
    """The rest in its order: tile, warps, pipeline, padding, options."""
    unknown: tuple[str, ...]
    """Pieces that are not known here."""


def read_name(name: str) -> KernelName | None:
    """What the name of a kernel source (without folder and extension) says; None if it is not one of CK's fmha."""
    said = parse_kernel_name(name)
    if said is None or said.operation not in OPERATIONS:
        return None
    direction, does = OPERATIONS[said.operation]
    if said.is_api:
        chooses = f"chooses the {said.operation} kernel for a call, at run time"
        return KernelName(name, direction, chooses, "", "", "", said.arch, (), (said.rest,) if said.rest else ())
    if said.type not in TYPES:
        return None
    parts, unknown = _parts(said.operation, said.rest[len(said.type) + 1 :])
    mode = next((part.text for part in parts if part.text in ("batch", "group")), "")
    return KernelName(name, direction, does, said.head_dim, said.type, mode, said.arch, tuple(parts), tuple(unknown))


def _parts(operation: str, text: str) -> tuple[list[Part], list[str]]:
    parts: list[Part] = []
    unknown: list[str] = []
    seen = {"b": 0, "r": 0, "w": 0}
    while text:
        word = next((word for word in LONGEST_FIRST if text == word or text.startswith(f"{word}_")), None)
        if word is None:
            word = text.partition("_")[0]
            meaning = _varying(operation, word, seen)
        else:
            meaning = FIXED[word]
        if meaning:
            parts.append(Part(word, meaning))
        else:
            unknown.append(word)
        text = text[len(word) + 1 :]
    return parts, unknown


def _varying(operation: str, word: str, seen: dict[str, int]) -> str | None:
    """The meaning of a part that holds numbers; None if it is not known."""
    sizes = _SIZES.fullmatch(word)
    if sizes:
        letter, numbers = sizes.groups()
        position = seen[letter]
        seen[letter] += 1
        if letter == "b":
            return block_tile(operation, numbers.split("x"))
        return (warps if letter == "r" else matrix_instruction)(operation, position, numbers)
    occupancy = _OCCUPANCY.fullmatch(word)
    if occupancy:
        return f"occupancy: {occupancy[1]} at once on a compute unit" if occupancy[1] != "-1" else "occupancy: free"
    longest = _LONGEST_QUERY.fullmatch(word)
    if longest:
        return "queries of any number" if longest[1] == "0" else f"at most {longest[1]} queries"
    return padding(word)


def family(name: KernelName) -> str:
    """Which archs have code of this kernel, in words; empty if its name does not say."""
    return FAMILIES.get(name.arch, name.arch)
