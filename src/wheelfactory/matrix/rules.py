"""The rules: each says why a point of two or three axes cannot work, or "" if it has nothing against it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from packaging.specifiers import SpecifierSet

from wheelfactory.cell import Backend
from wheelfactory.matrix.facts import Exclusion, Matrix, common_archs

Combination = tuple[str, str, str, str, Backend]
"""A point of the product of the axes: flash-attn, python, torch, ROCm, backend."""

Refuse = Callable[[Combination], str]


def backend_missing(matrix: Matrix, flash_attn: str, backend: Backend) -> str:
    """The release does not have that backend (2.6.3 has no Triton for AMD)."""
    return "" if matrix.flash_attn[flash_attn].backend(backend) else f"flash-attn {flash_attn} has no {backend} backend"


def not_on_index(matrix: Matrix, torch: str, rocm: str) -> str:
    """PyTorch does not publish that torch for that ROCm."""
    if torch in matrix.rocm[rocm].torch:
        return ""
    has = [version for version, facts in matrix.rocm.items() if torch in facts.torch]
    where = f"it is on {', '.join(has)}" if has else "it is on none in the matrix"
    return f"torch {torch} is not on the ROCm {rocm} index; {where}"


def python_missing(matrix: Matrix, torch: str, python: str) -> str:
    """That torch is not built for that Python."""
    known = matrix.torch[torch].python
    return "" if python in known else f"torch {torch} for ROCm has no Python {python}; it has {', '.join(known)}"


def python_refused(matrix: Matrix, flash_attn: str, python: str) -> str:
    """The release does not support that Python."""
    needs = matrix.flash_attn[flash_attn].python
    return "" if _in(needs, python) else f"flash-attn {flash_attn} needs Python {needs}, not {python}"


def outside_triton_window(matrix: Matrix, flash_attn: str, torch: str, backend: Backend) -> str:
    """That torch brings a Triton that the release's kernels do not import or compile with."""
    release, version = matrix.flash_attn[flash_attn].triton, matrix.torch[torch].triton
    if backend is Backend.CK or release is None or _in(release.window, version):
        return ""
    return f"torch {torch} brings Triton {version}; the kernels of flash-attn {flash_attn} need {release.window}"


def no_common_arch(matrix: Matrix, flash_attn: str, rocm: str, backend: Backend) -> str:
    """No arch that the release supports is one that torch for that ROCm is built for."""
    if common_archs(matrix.flash_attn[flash_attn], matrix.rocm[rocm], backend):
        return ""
    return f"flash-attn {flash_attn} {backend} supports no arch that torch for ROCm {rocm} is built for"


def first_reason(matrix: Matrix) -> Refuse:
    """All rules and exclusions as one function, which gives the first reason against a combination.

    Each rule sees few axes and is remembered for them, so that 100,000 combinations cost look-ups rather than
    version comparisons.
    """
    backend_of, index_of, python_of_torch, python_of_release, triton_of, arch_of = (
        cache(partial(rule, matrix))
        for rule in (
            backend_missing,
            not_on_index,
            python_missing,
            python_refused,
            outside_triton_window,
            no_common_arch,
        )
    )
    exclusions = [exclusion_rule(exclusion) for exclusion in matrix.exclude]

    def refuse(combination: Combination) -> str:
        flash_attn, python, torch, rocm, backend = combination
        return (
            backend_of(flash_attn, backend)
            or index_of(torch, rocm)
            or python_of_torch(torch, python)
            or python_of_release(flash_attn, python)
            or triton_of(flash_attn, torch, backend)
            or arch_of(flash_attn, rocm, backend)
            or next((reason for rule in exclusions if (reason := rule(combination))), "")
        )

    return refuse


def exclusion_rule(exclusion: Exclusion) -> Refuse:
    """An exclusion of the matrix as a rule: its reason for the combinations it takes, "" for the others."""

    @cache
    def takes(axis: str, value: str) -> bool:
        return axis not in exclusion.axes or _in(exclusion.axes[axis], value)

    def rule(combination: Combination) -> str:
        flash_attn, python, torch, rocm, backend = combination
        excluded = (
            exclusion.backend in (None, backend)
            and takes("flash-attn", flash_attn)
            and takes("python", python)
            and takes("torch", torch)
            and takes("rocm", rocm)
        )
        return exclusion.reason if excluded else ""

    return rule


def _in(window: str, version: str) -> bool:
    return SpecifierSet(window).contains(version, prereleases=True)
