"""The rules of a matrix: each judges a combination of two or three axes, with the reason where it does not work.

Rules about cells return why a combination is excluded, or "". Rules about GPUs return a `Finding`, because a GPU that
nobody promises may still work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

from wheelfactory.core.cell import Backend, name_flash_attn, preview_commit
from wheelfactory.core.support import Answer, Finding
from wheelfactory.matrix.facts import CkBackend, Exclusion, Matrix, TritonBackend, common_archs
from wheelfactory.matrix.forms import in_window

Combination = tuple[str, str, str, str, Backend]
"""One value of each axis: flash-attn, python, torch, ROCm, backend."""

AXES = ("flash-attn", "python", "torch", "rocm", "backend")
"""The names of the axes, in the order of a `Combination`."""

# the axis of offload archs, which is in no combination, because one wheel has code for several
GPU = "gpu"


@dataclass(frozen=True)
class Rule:
    """A rule of one matrix, and the axes that it depends on."""

    axes: tuple[str, ...]
    judge: Callable[..., Finding | None]
    """Takes the values of those axes; returns None if nothing speaks against them."""
    is_of_pytorch: bool = False
    """Whether it is about what PyTorch publishes, so not about AMD's own builds of torch."""


def check_backend(matrix: Matrix, flash_attn: str, backend: Backend) -> str:
    """The release must have the backend (2.6.3 has no Triton backend for AMD)."""
    has_backend = matrix.flash_attn[flash_attn].backend(backend)
    return "" if has_backend else f"flash-attn {name_flash_attn(flash_attn)} has no {backend} backend"


def check_torch_index(matrix: Matrix, torch: str, rocm: str) -> str:
    """PyTorch must publish the torch for the ROCm."""
    if torch in matrix.rocm[rocm].torch:
        return ""
    versions = [version for version, facts in matrix.rocm.items() if torch in facts.torch]
    where = f"it is on {', '.join(versions)}" if versions else "no ROCm of matrix.yaml has it"
    return f"torch {torch} is not on the ROCm {rocm} index; {where}"


def check_torch_python(matrix: Matrix, torch: str, python: str) -> str:
    """PyTorch must build the torch for the Python."""
    known = matrix.torch[torch].python
    return "" if python in known else f"torch {torch} for ROCm has no Python {python}; it has {', '.join(known)}"


def check_flash_attn_python(matrix: Matrix, flash_attn: str, python: str) -> str:
    """The release must support the Python."""
    needs = matrix.flash_attn[flash_attn].python
    if in_window(needs, python):
        return ""
    return f"flash-attn {name_flash_attn(flash_attn)} needs Python {needs}, not {python}"


def check_flash_attn_torch(matrix: Matrix, flash_attn: str, torch: str) -> str:
    """The release must be for the torch."""
    needs = matrix.flash_attn[flash_attn].torch
    if needs is None or in_window(needs, torch):
        return ""
    return f"flash-attn {name_flash_attn(flash_attn)} is built for torch {needs}, not {torch}"


def check_cxx_standard(matrix: Matrix, flash_attn: str, torch: str, backend: Backend) -> str:
    """setup.py must compile with the C++ standard that the headers of torch need, or a newer one."""
    release, needs = matrix.flash_attn[flash_attn].ck, matrix.torch[torch].cxx_standard
    if backend is Backend.TRITON or release is None or needs <= release.cxx_standard:
        return ""
    # without the release, so that several releases have one reason
    given = f"setup.py of these releases compiles with -std=c++{release.cxx_standard}"
    return f"torch {torch} needs C++{needs} headers, and {given}"


def check_triton_version(matrix: Matrix, flash_attn: str, torch: str, backend: Backend) -> str:
    """The kernels of the release must import and compile with the torch's Triton."""
    release, version = matrix.flash_attn[flash_attn].triton, matrix.torch[torch].triton
    if backend is Backend.CK or release is None or in_window(release.window, version):
        return ""
    kernels = f"the kernels of flash-attn {name_flash_attn(flash_attn)}"
    return f"torch {torch} brings Triton {version}; {kernels} need {release.window}"


def check_common_arch(matrix: Matrix, flash_attn: str, rocm: str, backend: Backend) -> str:
    """The release and torch for the ROCm must have an arch in common."""
    release = matrix.flash_attn[flash_attn]
    if release.backend(backend) is None or common_archs(release, matrix.rocm[rocm], backend):
        return ""
    name = name_flash_attn(flash_attn)
    return f"flash-attn {name} {backend} supports no arch that torch for ROCm {rocm} is built for"


def judge_gpu_code(matrix: Matrix, flash_attn: str, backend: Backend, arch: str) -> Finding | None:
    """The backend of the release must support the GPU; Triton may compile for others too."""
    release = matrix.flash_attn[flash_attn].backend(backend)
    if release is None or arch in release.archs:
        return _judge_unproved_arch(release, arch, flash_attn) if isinstance(release, CkBackend) else None
    if isinstance(release, TritonBackend):
        return _judge_unlisted_arch(release, arch, flash_attn)
    supporting = [version for version, facts in matrix.flash_attn.items() if facts.ck and arch in facts.ck.archs]
    others = f"; {_and([name_flash_attn(version) for version in supporting])} does" if supporting else ""
    if any(not preview_commit(version) for version in supporting):
        return Finding(Answer.DOES_NOT_WORK, f"flash-attn {flash_attn}: CK does not support {arch}{others}")
    newest = next((version for version in matrix.flash_attn if not preview_commit(version)), flash_attn)
    return Finding(Answer.DOES_NOT_WORK, f"CK in flash-attn up to {newest} does not support {arch}{others}")


def judge_preview(flash_attn: str) -> Finding | None:
    """Nobody promises a preview: upstream has not released it."""
    name = name_flash_attn(flash_attn)
    reason = f"flash-attn {name} is not a release of upstream; its wheels have an index of their own"
    return Finding(Answer.MAY_WORK, reason) if preview_commit(flash_attn) else None


def _judge_unproved_arch(release: CkBackend, arch: str, flash_attn: str) -> Finding | None:
    if arch not in release.may_work:
        return None
    kernels = f"the CK kernels of flash-attn {name_flash_attn(flash_attn)}"
    reason = f"{kernels} are compiled for {arch}, and not proved on it: {release.may_work[arch]}"
    return Finding(Answer.MAY_WORK, reason)


def _judge_unlisted_arch(release: TritonBackend, arch: str, flash_attn: str) -> Finding:
    # upstream's list chooses the tuning; Triton itself compiles for any arch that it knows
    if arch in release.fails:
        return Finding(Answer.DOES_NOT_WORK, f"flash-attn's Triton kernels fail on {arch}: {release.fails[arch]}")
    known = release.may_work.get(arch, "nobody has reported whether it works")
    backend = "flash-attn's Triton backend"  # not named for a release, so that equal reasons are shown once
    if preview_commit(flash_attn):
        backend = f"the Triton backend of flash-attn {name_flash_attn(flash_attn)}"
    return Finding(Answer.MAY_WORK, f"{backend} does not list {arch}, so no wheel promises it: {known}")


def judge_torch_arch(matrix: Matrix, rocm: str, arch: str) -> Finding | None:
    """PyTorch must build torch for the GPU on the ROCm."""
    # without such a torch, nothing runs on this GPU
    versions = [version for version, facts in matrix.rocm.items() if arch in facts.archs]
    if rocm in versions:
        return None
    if known := matrix.rocm[rocm].may_work.get(arch):
        return Finding(Answer.MAY_WORK, f"not every torch for ROCm {rocm} is known to be built for {arch}: {known}")
    reason = f"PyTorch does not build torch for {arch} on any ROCm of the matrix"
    if versions:
        reason = f"torch for ROCm {rocm} is not built for {arch}; torch for ROCm {_and(versions)} is"
    return Finding(Answer.DOES_NOT_WORK, reason)


def cell_rules(matrix: Matrix) -> tuple[Rule, ...]:
    """All rules and exclusions of a matrix, in the order of evaluation."""
    return (
        _refusal(("flash-attn", "backend"), partial(check_backend, matrix)),
        _refusal(("torch", "rocm"), partial(check_torch_index, matrix), is_of_pytorch=True),
        _refusal(("torch", "python"), partial(check_torch_python, matrix), is_of_pytorch=True),
        _refusal(("flash-attn", "python"), partial(check_flash_attn_python, matrix)),
        _refusal(("flash-attn", "torch"), partial(check_flash_attn_torch, matrix)),
        _refusal(("flash-attn", "torch", "backend"), partial(check_cxx_standard, matrix)),
        _refusal(("flash-attn", "torch", "backend"), partial(check_triton_version, matrix)),
        _refusal(("flash-attn", "rocm", "backend"), partial(check_common_arch, matrix)),
        *map(exclusion_rule, matrix.exclude),
    )


def _refusal(axes: tuple[str, ...], find_reason: Callable[..., str], *, is_of_pytorch: bool = False) -> Rule:
    """A rule whose reasons exclude a combination."""

    def judge(*values: str) -> Finding | None:
        reason = find_reason(*values)
        return Finding(Answer.DOES_NOT_WORK, reason) if reason else None

    return Rule(axes, judge, is_of_pytorch)


def gpu_rules(matrix: Matrix) -> tuple[Rule, ...]:
    """The rules for a GPU: the wheel of a combination has code for a GPU if no rule has a finding."""
    return (
        # first, as the reasons of later rules come before it
        Rule(("flash-attn",), judge_preview),
        Rule(("flash-attn", "backend", GPU), partial(judge_gpu_code, matrix)),
        Rule(("rocm", GPU), partial(judge_torch_arch, matrix)),
    )


def exclusion_check(matrix: Matrix, *, amd_torch: bool = False) -> Callable[[Combination], str]:
    """Combine all rules and exclusions into a function that returns the first reason against a combination, or "".

    With `amd_torch`, without the rules about what PyTorch publishes.
    """
    # cached per rule, because a rule has few axes: 100,000 combinations then cost look-ups, not version comparisons
    rules = (rule for rule in cell_rules(matrix) if not (amd_torch and rule.is_of_pytorch))
    cached = [(cache(rule.judge), tuple(map(AXES.index, rule.axes))) for rule in rules]

    def find_reason(combination: Combination) -> str:
        for judge, positions in cached:
            if finding := judge(*[combination[position] for position in positions]):
                return finding.reason
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

    return _refusal(axes, find_reason)


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
