"""Correct single lines of upstream's files in a wheel; corrections.yaml has each line with its reason."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from wheelfactory.core.cell import Backend
from wheelfactory.core.models import FrozenModel
from wheelfactory.wheel.read import Wheel


class Line(FrozenModel):
    """The new text of a line, and the fault that it removes."""

    reason: str
    text: str


class Correction(FrozenModel):
    """The corrected lines of a file, by number from 1; they apply to a file with exactly this sha256."""

    file: str
    sha256: str
    backend: Backend | None = None
    """The backend whose wheels it is for; None for both."""
    lines: Mapping[int, Line]

    def apply(self, data: bytes) -> bytes:
        """Return the corrected file."""
        lines = data.decode().split("\n")
        for number, line in self.lines.items():
            lines[number - 1] = line.text
        return "\n".join(lines).encode()


@cache
def read_corrections() -> tuple[Correction, ...]:
    """Read corrections.yaml."""
    text = Path(__file__).with_name("corrections.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[Correction, ...]).validate_python(yaml.safe_load(text), strict=False)


def corrected_members(wheel: Wheel, backend: Backend) -> dict[str, bytes]:
    """Return the corrected bytes of the members of a raw wheel that corrections.yaml names, by name."""
    return {one.file: one.apply(wheel.read(one.file)) for one in _corrections_of(wheel, backend)}


def corrected_lines(wheel: Wheel, backend: Backend) -> dict[str, tuple[int, ...]]:
    """Return the numbers of the corrected lines, by member name, for the build record."""
    return {one.file: tuple(one.lines) for one in _corrections_of(wheel, backend)}


def _corrections_of(wheel: Wheel, backend: Backend) -> tuple[Correction, ...]:
    known = (one for one in read_corrections() if one.file in wheel.sizes and one.backend in (None, backend))
    return tuple(one for one in known if hashlib.sha256(wheel.read(one.file)).hexdigest() == one.sha256)
