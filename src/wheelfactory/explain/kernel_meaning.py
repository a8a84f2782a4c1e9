"""The name of a generated kernel -> what each part of it means, by the glossary."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from wheelfactory.core.gpus import FAMILIES
from wheelfactory.core.kernel_name import parse_kernel_name
from wheelfactory.explain.glossary import Operation, glossary

_SIZES = re.compile(r"([brw])(\d+(?:x\d+)*)")
_OCCUPANCY = re.compile(r"o(-?\d+)")
_LONGEST_QUERY = re.compile(r"maxq(\d+)")
_PADDING = re.compile(r"p(s)?(sk)?(?:(d)([0-9]*))?(?:(dv)([0-9]*))?")
_PADDED = ("queries", "keys", "head dim of Q", "head dim of V")


@dataclass(frozen=True)
class NamePart:
    """A piece of a name and what it means."""

    text: str
    meaning: str


@dataclass(frozen=True)
class KernelMeaning:
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
    parts: tuple[NamePart, ...]
    """The rest in its order: tile, warps, pipeline, padding, options."""
    unknown: tuple[str, ...]
    """Pieces that are not known here."""

    @property
    def family(self) -> str:
        """Which archs have code of this kernel, in words; empty if its name does not say."""
        return FAMILIES.get(self.arch, self.arch)


def find_kernel_meaning(name: str) -> KernelMeaning | None:
    """What the name of a kernel source (without folder and extension) says; None if it is not one of CK's fmha."""
    said = parse_kernel_name(name)
    known = glossary().operations.get(said.operation) if said else None
    if said is None or known is None:
        return None
    if said.is_api:
        chooses = f"chooses the {said.operation} kernel for a call, at run time"
        return KernelMeaning(name, known.direction, chooses, "", "", "", said.arch, (), (said.rest,) * bool(said.rest))
    if said.type not in glossary().types:
        return None
    parts, unknown = _parts(known, said.rest[len(said.type) + 1 :])
    return KernelMeaning(
        name=name,
        direction=known.direction,
        operation=known.meaning,
        head_dim=said.head_dim,
        type=said.type,
        mode=next((part.text for part in parts if part.text in ("batch", "group")), ""),
        arch=said.arch,
        parts=tuple(parts),
        unknown=tuple(unknown),
    )


def _parts(operation: Operation, text: str) -> tuple[list[NamePart], list[str]]:
    """The known pieces of the rest of a name, and the others; of several fixed pieces that fit, the longest counts."""
    fixed = glossary().name_parts
    parts: list[NamePart] = []
    unknown: list[str] = []
    seen: Counter[str] = Counter()
    while text:
        fitting = [word for word in fixed if text == word or text.startswith(f"{word}_")]
        word = max(fitting, key=len, default=text.partition("_")[0])
        meaning = fixed.get(word) or _varying(operation, word, seen)
        if meaning:
            parts.append(NamePart(word, meaning))
        else:
            unknown.append(word)
        text = text[len(word) + 1 :]
    return parts, unknown


def _varying(operation: Operation, word: str, seen: Counter[str]) -> str | None:
    """The meaning of a part that holds numbers, where `seen` counts tiles, warps and matrices; None if unknown."""
    if match := _SIZES.fullmatch(word):
        letter, numbers = match.groups()
        position = seen[letter]
        seen[letter] += 1
        if letter == "b":
            sizes = numbers.split("x")
            told = ", ".join(f"{size} {name}" for size, name in zip(sizes, operation.tile, strict=False))
            return f"tile: {told}" if len(sizes) == len(operation.tile) else None
        label, names = ("warps", operation.warps) if letter == "r" else ("matrix", operation.matrix)
        return f"{label}: {numbers} for {names[position] if position < len(names) else f'product {position}'}"
    if match := _OCCUPANCY.fullmatch(word):
        return f"occupancy: {match[1]} at once on a compute unit" if match[1] != "-1" else "occupancy: free"
    if match := _LONGEST_QUERY.fullmatch(word):
        return "queries of any number" if match[1] == "0" else f"at most {match[1]} queries"
    return _padding(word)


def _padding(word: str) -> str | None:
    """What ``pssk`` or ``pd8dv8`` says: which sizes need not fit the tile; None if it is something else.

    The newer generator says how far a head dim may be from the tile: ``8`` a multiple of 8, ``1`` anything.
    """
    match = _PADDING.fullmatch(word)
    if match is None or word == "p":
        return None
    s, sk, d, d_multiple, dv, dv_multiple = match.groups()
    told = []
    for name, letters, multiple in zip(_PADDED, (s, sk, d, dv), ("", "", d_multiple, dv_multiple), strict=True):
        if letters:
            told.append(
                name + ("" if not multiple else " (any)" if multiple == "1" else f" (a multiple of {multiple})")
            )
    return f"padded: {', '.join(told)}"
