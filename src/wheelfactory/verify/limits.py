"""What releases are known not to do: gates leave it out, and their results say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

from wheelfactory.core.cell import Backend
from wheelfactory.verify.gate import Subject


@dataclass(frozen=True)
class KnownLimit:
    """Backward passes that do not work with some release, Triton and arch. Everything else is asked for."""

    cases: str
    """A pattern (fnmatch) of the names of cases."""
    flash_attn: str
    """The releases, as a version specifier."""
    reason: str
    """What is not asked for and why, for a person."""
    triton: str = ""
    """The Tritons, as a version specifier; empty is any."""
    archs: frozenset[str] = frozenset()
    """Empty is any, also where no arch is concerned."""
    skip_forward: bool = False
    """Whether the cases do not work forward either."""

    @property
    def argument(self) -> str:
        """How the programs take it."""
        return f"!{self.cases}" if self.skip_forward else self.cases

    def __str__(self) -> str:
        return f"not asked for: {self.reason}"


LIMITS = (
    KnownLimit(
        "grouped*",
        flash_attn="<2.8",
        # the kernel takes the number of a query head for one of a key head, and writes past the end of dk and dv
        reason="backward with grouped heads, which 2.7.4.post1 has forward only (its README)",
    ),
    KnownLimit(
        "*causal bfloat16",
        flash_attn=">=2.8",
        triton=">=3.4",
        archs=frozenset({"gfx1030"}),
        # with 3.3.1 the same kernel takes 32 KiB, and 64 at head dim 128
        reason="causal backward in bf16 on gfx1030, where it needs 72 KiB of LDS and the GPU has 64 (measured)",
    ),
    KnownLimit(
        "*bfloat16",
        flash_attn=">=2",
        triton="<3.2",
        archs=frozenset({"gfx1030"}),
        # "Unsupported conversion from 'bf16' to 'f16'", which a GPU without matrix instructions needs for products
        reason="bf16 on gfx1030, for which Triton 3.1 does not compile it (measured)",
        skip_forward=True,
    ),
)
"""Of the Triton backend."""

FULL_LIMITS = (
    *LIMITS,
    KnownLimit(
        "uneven cached*",
        flash_attn=">=2.7",
        # the masks of fwd_decode.py leave out where a block begins, so a block that ends behind the cache reads what is
        # there; its weights are 0, and 0 times NaN is NaN (seen in the interpreter)
        reason="a cache of keys that Triton divides into parts of no whole blocks, where the kernel reads past its end",
        skip_forward=True,
    ),
)
"""Of the Triton backend, for the full suite."""


def find_cell_limits(subject: Subject, arch: str | None = None) -> tuple[KnownLimit, ...]:
    """The limits of a wheel with the Triton of its cell, on an arch if one is concerned."""
    cell = subject.cell
    if cell.backend is not Backend.TRITON:
        return ()
    return find_limits(LIMITS, cell.flash_attn, subject.triton, arch)


def find_limits(limits: Iterable[KnownLimit], flash_attn: str, triton: str, arch: str | None) -> tuple[KnownLimit, ...]:
    """Those of a release of flash-attn with a Triton, on an arch if one is concerned."""
    return tuple(
        limit
        for limit in limits
        if SpecifierSet(limit.flash_attn).contains(flash_attn)
        and SpecifierSet(limit.triton).contains(triton)
        and (not limit.archs or arch in limit.archs)
    )
