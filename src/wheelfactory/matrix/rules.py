"""The rules of a matrix: each returns why a combination of two or three axes is unsupported, or ""."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from wheelfactory.core.cell import Backend
from wheelfactory.matrix.facts import Exclusion, Matrix, common_archs, in_window

Combination = tuple[str, str, str, str, Backend]
"""One value of each axis: flash-attn, python, torch, ROCm, backend."""

AXES = ("flash-attn", "python", "torch", "rocm", "backend")
"""The names of the axes, in the order of a `Combination`."""

# the axis of offload archs, which is in no combination, because one wheel has code for several
GPU = "gpu"


# the reason for an arch of no release. CK refuses to build for it; Triton compiles at run time and may work
_UNSUPPORTED = {
    Backend.CK: "CK does not support {arch}",
    Backend.TRITON: "flash-attn's Triton backend does not list {arch}: no wheel promises it",
}


@dataclass(frozen=True)
class Rule:
    """A rule of one matrix, and the axes that it depends on."""

    axes: tuple[str, ...]
    reason_against: Callable[..., str]
    """Takes the values of those axes; returns the reason against them, or ""."""


def check_backend(matrix: Matrix, flash_attn: str, backend: Backend) -> str:
    """The release must have the backend (2.6.3 has no Triton backend for AMD)."""
    return "" if matrix.flash_attn[flash_attn].backend(backend) else f"flash-attn {flash_attn} has no {backend} backend"


def check_torch_index(matrix: Matrix, torch: str, rocm: str) -> str:
    """PyTorch must publish the torch for the ROCm."""
    if torch in matrix.rocm[rocm].torch:
        return ""
    versions = [version for version, facts in matrix.rocm.items() if torch in facts.torch]
    where = f"it is on {', '.join(versions)}" if versions else "it is on none of the matrix"
    return f"torch {torch} is not on the ROCm {rocm} index; {where}"


def check_torch_python(matrix: Matrix, torch: str, python: str) -> str:
    """PyTorch must build the torch for the Python."""
    known = matrix.torch[torch].python
    return "" if python in known else f"torch {torch} for ROCm has no Python {python}; it has {', '.join(known)}"


def check_flash_attn_python(matrix: Matrix, flash_attn: str, python: str) -> str:
    """The release must support the Python."""
    needs = matrix.flash_attn[flash_attn].python
    return "" if in_window(needs, python) else f"flash-attn {flash_attn} needs Python {needs}, not {python}"


def check_triton_version(matrix: Matrix, flash_attn: str, torch: str, backend: Backend) -> str:
    """The kernels of the release must import and compile with the torch's Triton."""
    release, version = matrix.flash_attn[flash_attn].triton, matrix.torch[torch].triton
    if backend is Backend.CK or release is None or in_window(release.window, version):
        return ""
    return f"torch {torch} brings Triton {version}; the kernels of flash-attn {flash_attn} need {release.window}"


def check_common_arch(matrix: Matrix, flash_attn: str, rocm: str, backend: Backend) -> str:
    """The release and torch for the ROCm must have an arch in common."""
    if common_archs(matrix.flash_attn[flash_attn], matrix.rocm[rocm], backend):
        return ""
    return f"flash-attn {flash_attn} {backend} supports no arch that torch for ROCm {rocm} is built for"


def check_gpu_code(matrix: Matrix, flash_attn: str, backend: Backend, arch: str) -> str:
    """The backend of the release must support the GPU."""
    supporting = [
        version
        for version, release in matrix.flash_attn.items()
        if (facts := release.backend(backend)) and arch in facts.archs
    ]
    if not supporting:
        return _UNSUPPORTED[backend].format(arch=arch)
    if flash_attn in supporting or matrix.flash_attn[flash_attn].backend(backend) is None:
        return ""
    return f"flash-attn {flash_attn}: {backend.display_name} does not support {arch}; {_and(supporting)} does"


def check_torch_arch(matrix: Matrix, rocm: str, arch: str) -> str:
    """PyTorch must build torch for the GPU on the ROCm."""
    # without such a torch, nothing runs on this GPU
    versions = [version for version, facts in matrix.rocm.items() if arch in facts.archs]
    if not versions:
        return f"torch for ROCm is not built for {arch} on any ROCm of the matrix"
    return (
        "" if rocm in versions else f"torch for ROCm {rocm} is not built for {arch}; torch for ROCm {_and(versions)} is"
    )


def cell_rules(matrix: Matrix) -> tuple[Rule, ...]:
    """All rules and exclusions of a matrix, in the order of evaluation."""
    return (
        Rule(("flash-attn", "backend"), partial(check_backend, matrix)),
        Rule(("torch", "rocm"), partial(check_torch_index, matrix)),
        Rule(("torch", "python"), partial(check_torch_python, matrix)),
        Rule(("flash-attn", "python"), partial(check_flash_attn_python, matrix)),
        Rule(("flash-attn", "torch", "backend"), partial(check_triton_version, matrix)),
        Rule(("flash-attn", "rocm", "backend"), partial(check_common_arch, matrix)),
        *map(exclusion_rule, matrix.exclude),
    )


def gpu_rules(matrix: Matrix) -> tuple[Rule, ...]:
    """The rules for a GPU: the wheel of a combination has code for a GPU if no rule gives a reason."""
    return (
        Rule(("flash-attn", "backend", GPU), partial(check_gpu_code, matrix)),
        Rule(("rocm", GPU), partial(check_torch_arch, matrix)),
    )


def exclusion_check(matrix: Matrix) -> Callable[[Combination], str]:
    """Combine all rules and exclusions into a function that returns the first reason against a combination, or ""."""
    # cached per rule, because a rule has few axes: 100,000 combinations then cost look-ups, not version comparisons
    cached = [(cache(rule.reason_against), tuple(map(AXES.index, rule.axes))) for rule in cell_rules(matrix)]

    def find_reason(combination: Combination) -> str:
        for rule, positions in cached:
            if reason := rule(*[combination[position] for position in positions]):
                return reason
        return ""

    return find_reason


def exclusion_rule(exclusion: Exclusion) -> Rule:
    """Convert an exclusion of the matrix to a rule."""
    axes = (*exclusion.axes, *(["backend"] if exclusion.backend else []))

    @cache
    def matches(axis: str, value: str) -> bool:
        return value == exclusion.backend if axis == "backend" else in_window(exclusion.axes[axis], value)

    def find_reason(*values: str) -> str:
        return exclusion.reason if all(map(matches, axes, values)) else ""

    return Rule(axes, find_reason)


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
