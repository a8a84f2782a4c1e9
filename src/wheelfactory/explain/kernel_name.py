"""The name of a generated kernel -> what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wheelfactory.core.gpus import FAMILIES
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

_KERNEL = re.compile(r"fmha_([a-z_]+?)_d(\d{1,4})(?:x(\d{1,4}))?_([a-z0-9]+)(?:_(.*))?")
_API = re.compile(r"fmha_([a-z_]+?)_api(?:_(.*))?")
_ARCH = re.compile(r"(?:^|_)(gfx[0-9a-f]+)$")
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
    arch = _ARCH.search(name)
    bare = name[: arch.start()] if arch else name
    family = arch[1] if arch else ""
    api = _API.fullmatch(bare)
    if api and api[1] in OPERATIONS:
        direction, _ = OPERATIONS[api[1]]
        chooses = f"chooses the {api[1]} kernel for a call, at run time"
        return KernelName(name, direction, chooses, "", "", "", family, (), tuple((api[2] or "").split()))
    match = _KERNEL.fullmatch(bare)
    if match is None or match[1] not in OPERATIONS or match[4] not in TYPES:
        return None
    direction, does = OPERATIONS[match[1]]
    parts, unknown = _parts(match[1], match[5] or "")
    mode = next((part.text for part in parts if part.text in ("batch", "group")), "")
    head_dim = match[2] + (f"x{match[3]}" if match[3] else "")
    return KernelName(name, direction, does, head_dim, match[4], mode, family, tuple(parts), tuple(unknown))


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
