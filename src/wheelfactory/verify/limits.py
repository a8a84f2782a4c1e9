"""Known limits of releases (limits.yaml): gates skip these cases, and their results say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet
from pydantic import TypeAdapter

from wheelfactory.core.cell import Backend
from wheelfactory.verify.gate import Subject


@dataclass(frozen=True)
class KnownLimit:
    """Cases whose backward pass fails with some release, Triton and arch."""

    cases: str
    """An fnmatch pattern for the names of cases."""
    flash_attn: str
    """A version specifier of releases."""
    reason: str
    """What is skipped and why, shown to users."""
    triton: str = ""
    """A version specifier of Triton; empty matches any."""
    archs: frozenset[str] = frozenset()
    """Empty matches any arch, and runs without an arch."""
    skip_forward: bool = False
    """Whether the forward pass fails too."""

    @property
    def argument(self) -> str:
        """The argument for the programs; a leading ``!`` skips the forward pass too."""
        return f"!{self.cases}" if self.skip_forward else self.cases

    def applies(self, flash_attn: str, triton: str, arch: str | None) -> bool:
        """Whether these cases fail with a release, a Triton version and an arch."""
        if self.archs and arch not in self.archs:
            return False
        return SpecifierSet(self.flash_attn).contains(flash_attn) and SpecifierSet(self.triton).contains(triton)

    def __str__(self) -> str:
        return f"skipped: {self.reason}"


_TABLE = Path(__file__).with_name("limits.yaml").read_text(encoding="utf-8")
LIMITS = TypeAdapter(tuple[KnownLimit, ...]).validate_python(yaml.safe_load(_TABLE))


def find_cell_limits(subject: Subject, arch: str | None = None) -> tuple[KnownLimit, ...]:
    """Return the limits of a wheel with its cell's Triton; without `arch`, only those for every arch."""
    cell = subject.cell
    if cell.backend is not Backend.TRITON:
        return ()
    return find_limits(cell.flash_attn, subject.triton, arch)


def find_limits(flash_attn: str, triton: str, arch: str | None) -> tuple[KnownLimit, ...]:
    """Select the limits that apply to a release, a Triton version and an arch (None: only limits for every arch)."""
    return tuple(limit for limit in LIMITS if limit.applies(flash_attn, triton, arch))
