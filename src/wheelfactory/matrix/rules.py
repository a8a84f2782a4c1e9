"""The rules: each says why a point of two or three axes cannot work, or "" if it has nothing against it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from wheelfactory.core.cell import Backend
from wheelfactory.matrix.facts import Exclusion, Matrix, common_archs, in_window

Combination = tuple[str, str, str, str, Backend]
"""A point of the product of the axes: flash-attn, python, torch, ROCm, backend."""

AXES = ("flash-attn", "python", "torch", "rocm", "backend")
"""The axes by name, in the order of a `Combination`."""

GPU = "gpu"
"""The axis of offload archs; no combination has it, because a wheel holds code for several."""


_UNSUPPORTED = {
    Backend.CK: "CK does not support {arch}",
    Backend.TRITON: "flash-attn's Triton backend does not list {arch}: no wheel promises it",
}
"""Of an arch that no release has. CK refuses to build for it; Triton compiles on the machine, for what it can."""


@dataclass(frozen=True)
class Rule:
    """A rule of one matrix, with the axes it looks at."""

    axes: tuple[str, ...]
    reason_against: Callable[..., str]
    """The values of those axes -> the reason against them, or ""."""


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
    return "" if in_window(needs, python) else f"flash-attn {flash_attn} needs Python {needs}, not {python}"


def outside_triton_window(matrix: Matrix, flash_attn: str, torch: str, backend: Backend) -> str:
    """That torch brings a Triton that the release's kernels do not import or compile with."""
    release, version = matrix.flash_attn[flash_attn].triton, matrix.torch[torch].triton
    if backend is Backend.CK or release is None or in_window(release.window, version):
        return ""
    return f"torch {torch} brings Triton {version}; the kernels of flash-attn {flash_attn} need {release.window}"


def no_common_arch(matrix: Matrix, flash_attn: str, rocm: str, backend: Backend) -> str:
    """No arch that the release supports is one that torch for that ROCm is built for."""
    if common_archs(matrix.flash_attn[flash_attn], matrix.rocm[rocm], backend):
        return ""
    return f"flash-attn {flash_attn} {backend} supports no arch that torch for ROCm {rocm} is built for"


def no_code(matrix: Matrix, flash_attn: str, backend: Backend, arch: str) -> str:
    """The release's backend does not support that GPU; without its version where no release of the matrix does."""
    supporting = [
        version
        for version, release in matrix.flash_attn.items()
        if (facts := release.backend(backend)) and arch in facts.archs
    ]
    if not supporting:
        return _UNSUPPORTED[backend].format(arch=arch)
    if flash_attn in supporting or matrix.flash_attn[flash_attn].backend(backend) is None:
        return ""
    return f"flash-attn {flash_attn}: {backend.display_name} does not support {arch}; that of {_and(supporting)} does"


def torch_lacks_arch(matrix: Matrix, rocm: str, arch: str) -> str:
    """PyTorch does not build torch for that GPU on that ROCm, so that nothing runs there."""
    has = [version for version, facts in matrix.rocm.items() if arch in facts.archs]
    if not has:
        return f"torch for ROCm is not built for {arch}, on no ROCm of the matrix"
    return "" if rocm in has else f"torch for ROCm {rocm} is not built for {arch}; that for {_and(has)} is"


def cell_rules(matrix: Matrix) -> tuple[Rule, ...]:
    """All rules and exclusions of a matrix, in the order in which they are asked."""
    return (
        Rule(("flash-attn", "backend"), partial(backend_missing, matrix)),
        Rule(("torch", "rocm"), partial(not_on_index, matrix)),
        Rule(("torch", "python"), partial(python_missing, matrix)),
        Rule(("flash-attn", "python"), partial(python_refused, matrix)),
        Rule(("flash-attn", "torch", "backend"), partial(outside_triton_window, matrix)),
        Rule(("flash-attn", "rocm", "backend"), partial(no_common_arch, matrix)),
        *map(exclusion_rule, matrix.exclude),
    )


def gpu_rules(matrix: Matrix) -> tuple[Rule, ...]:
    """The rules that say why the wheels of a combination have no code for a GPU; where none does, they have it."""
    return (
        Rule(("flash-attn", "backend", GPU), partial(no_code, matrix)),
        Rule(("rocm", GPU), partial(torch_lacks_arch, matrix)),
    )


def exclusion_check(matrix: Matrix) -> Callable[[Combination], str]:
    """All rules and exclusions as one function, which gives the first reason against a combination.

    Each rule sees few axes and is remembered for them, so that 100,000 combinations cost look-ups rather than
    version comparisons.
    """
    asked = [(cache(rule.reason_against), tuple(map(AXES.index, rule.axes))) for rule in cell_rules(matrix)]

    def refuse(combination: Combination) -> str:
        for rule, places in asked:
            if reason := rule(*[combination[place] for place in places]):
                return reason
        return ""

    return refuse


def exclusion_rule(exclusion: Exclusion) -> Rule:
    """An exclusion of the matrix as a rule: its reason for the combinations it takes, "" for the others."""
    axes = (*exclusion.axes, *(["backend"] if exclusion.backend else []))

    @cache
    def takes(axis: str, value: str) -> bool:
        return value == exclusion.backend if axis == "backend" else in_window(exclusion.axes[axis], value)

    def refuse(*values: str) -> str:
        return exclusion.reason if all(map(takes, axes, values)) else ""

    return Rule(axes, refuse)


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
