"""Known limits of releases: gates skip these cases, and their results say so."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.specifiers import SpecifierSet

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

    def __str__(self) -> str:
        return f"skipped: {self.reason}"


# limits of the Triton backend
LIMITS = (
    KnownLimit(
        "grouped*",
        flash_attn="<2.8",
        # the kernel uses the index of a query head as the index of a key head, and writes past the end of dk and dv
        reason="backward with grouped heads, which 2.7.4.post1 supports forward only (its README)",
    ),
    KnownLimit(
        "*causal bfloat16",
        flash_attn=">=2.8,<2.8.4",  # from 2.8.4 the kernels are aiter's, which need 32 KiB (measured)
        triton=">=3.4",
        archs=frozenset({"gfx1030"}),
        # with Triton 3.3.1 the same kernel needs 32 KiB, and 64 KiB at head dim 128
        reason="causal backward in bf16 on gfx1030, where it needs 72 KiB of LDS and the GPU has 64 KiB (measured)",
    ),
    KnownLimit(
        "*bfloat16",
        flash_attn=">=2",
        triton="<3.2",
        archs=frozenset({"gfx1030"}),
        # "Unsupported conversion from 'bf16' to 'f16'": without matrix instructions, products need this conversion
        reason="bf16 on gfx1030, which Triton 3.1 cannot compile (measured)",
        skip_forward=True,
    ),
)


def find_cell_limits(subject: Subject, arch: str | None = None) -> tuple[KnownLimit, ...]:
    """Return the limits of a wheel with its cell's Triton; without `arch`, only those for every arch."""
    cell = subject.cell
    if cell.backend is not Backend.TRITON:
        return ()
    return find_limits(cell.flash_attn, subject.triton, arch)


def find_limits(flash_attn: str, triton: str, arch: str | None) -> tuple[KnownLimit, ...]:
    """Select the limits that apply to a release, a Triton version and an arch (None: only limits for every arch)."""
    return tuple(
        limit
        for limit in LIMITS
        if SpecifierSet(limit.flash_attn).contains(flash_attn)
        and SpecifierSet(limit.triton).contains(triton)
        and (not limit.archs or arch in limit.archs)
    )
