"""Cell + machine -> the environment variables that make upstream's unpatched setup.py build that cell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from wheelfactory.core.cell import Backend, Cell, same_rocm
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.host import Host
from wheelfactory.core.label import Label
from wheelfactory.matrix.facts import Matrix

GIB_PER_COMPILE = 1.3
"""Memory to plan for a compile: 1.17 GiB is the largest measured (Debian's clang 21), and hipcc with its driver takes
0.1. Where a compiler needs more and Linux kills one, half as many run from then on (kernels/compiler/schedule.py)."""


@dataclass(frozen=True)
class Recipe:
    """How to build one cell: what to tell setup.py, and what the wheel will then promise."""

    cell: Cell
    label: Label
    archs: tuple[str, ...]
    jobs: int
    setup_variables: dict[str, str]


def make_recipe(matrix: Matrix, cell: Cell, host: Host, environ: Mapping[str, str], *, local_build: bool) -> Recipe:
    """The recipe of a cell on a machine.

    ``MAX_JOBS`` in `environ` sets the number of compiles. A wheel built `by_hand` is for the archs that
    ``PYTORCH_ROCM_ARCH`` names, else for the machine's GPU; one for others is for all archs the cell promises.
    Raises `InputError` for an arch the release refuses, `BuildError` for a CK cell without its ROCm.
    """
    archs = matrix.archs(cell)
    if local_build:
        archs = choose_archs(matrix, cell, environ.get("PYTORCH_ROCM_ARCH", ""), host.gpu_archs)
    _refuse_without_rocm(matrix, cell, host, by_hand=local_build)
    jobs = choose_jobs(environ.get("MAX_JOBS", ""), default_jobs(host.cores, host.memory_gib))
    label = matrix.label(cell)
    return Recipe(cell, label, archs, jobs, _environment(cell, label, archs, jobs))


def _environment(cell: Cell, label: Label, archs: tuple[str, ...], jobs: int) -> dict[str, str]:
    """What setup.py of every release reads (facts: FORCE_BUILD is mandatory, GPU_ARCHS never defaults safely)."""
    common = {"BUILD_TARGET": "rocm", "FLASH_ATTENTION_FORCE_BUILD": "TRUE"}
    if cell.backend is Backend.TRITON:
        # built once for all labels, so the label is given afterwards
        return {**common, "FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"}
    return {
        **common,
        "FLASH_ATTENTION_TRITON_AMD_ENABLE": "FALSE",
        "FLASH_ATTN_LOCAL_VERSION": str(label),
        "GPU_ARCHS": ";".join(archs),
        "MAX_JOBS": str(jobs),
    }


def _refuse_without_rocm(matrix: Matrix, cell: Cell, host: Host, *, by_hand: bool) -> None:
    if cell.backend is Backend.TRITON:
        return
    if host.rocm is None:
        triton = matrix.flash_attn[cell.flash_attn].triton
        raise BuildError(
            f"cannot build {cell.id} here",
            "CK kernels need hipcc and this machine has no ROCm",
            "start Docker or podman, or build on a machine with ROCm (set ROCM_PATH if it is not in /opt/rocm)"
            + (", or take the Triton backend: --backend triton" if triton and by_hand else ""),
        )
    if not same_rocm(host.rocm, cell.rocm):
        raise BuildError(
            f"cannot build {cell.id} here",
            f"this machine has ROCm {host.rocm}, the cell needs {cell.rocm}",
            f"name ROCm {host.rocm} (or auto), or set ROCM_PATH to a ROCm {cell.rocm}",
        )


def choose_archs(matrix: Matrix, cell: Cell, requested: str, detected: tuple[str, ...]) -> tuple[str, ...]:
    """The offload archs to build for: those asked for, else those of the GPU, else all the cell can promise.

    `asked` is a PYTORCH_ROCM_ARCH text, separated by ``;``, ``,`` or blanks. Raises `InputError` for an arch
    that upstream's setup.py would refuse.
    """
    promised = matrix.archs(cell)
    named = tuple(dict.fromkeys(re.findall(r"[^;,\s]+", requested)))
    wanted = named or (detected if cell.backend is Backend.CK else ())
    refused = [arch for arch in wanted if arch not in promised]
    if refused:
        origin = (
            "PYTORCH_ROCM_ARCH asked for it (rocm/pytorch images set it)" if named else "this machine's GPU is that"
        )
        triton, other = matrix.flash_attn[cell.flash_attn].triton, ""
        if cell.backend is Backend.CK and triton and all(arch in triton.archs for arch in refused):
            other = "; the Triton backend supports it (--backend triton)"
        raise InputError(
            f"flash-attn {cell.flash_attn} {cell.backend} on ROCm {cell.rocm} does not support",
            ", ".join(refused),
            f"{origin}; supported: {';'.join(promised)}{other}",
        )
    # Triton compiles on the user's machine: its wheel is for all archs, whatever is asked for or at hand
    return wanted if wanted and cell.backend is Backend.CK else promised


def default_jobs(cores: int, free_gib: float) -> int:
    """How many kernels are compiled at once: one for each core and `GIB_PER_COMPILE` of free memory, at least one."""
    return max(1, min(cores, int(free_gib / GIB_PER_COMPILE)))


def choose_jobs(asked: str, otherwise: int) -> int:
    """How many compiles may run at once: as ``MAX_JOBS`` asks, else `otherwise`."""
    if not asked:
        return otherwise
    if not asked.isascii() or not asked.isdigit() or int(asked) < 1:
        raise InputError("MAX_JOBS is not a number of jobs", asked, "set it to 1 or more, or leave it unset")
    return int(asked)


def resolve_rocm_version(matrix: Matrix, host: Host, asked: str) -> str:
    """The ROCm version of the matrix that `asked` means; ``auto`` is the one found on this machine.

    A patch release counts as its minor (7.2.1 is 7.2) where the matrix has no entry of its own for it.
    Raises `InputError` if there is none.
    """
    version = asked
    if asked == "auto":
        if host.rocm is None:
            raise InputError("no ROCm found for", "auto", "set ROCM_PATH, or name the version, such as 6.4")
        version = host.rocm
    minor = ".".join(version.split(".")[:2])
    for candidate in (version, minor):
        if candidate in matrix.rocm:
            return candidate
    raise InputError("no such ROCm version in the matrix", version, f"known: {', '.join(matrix.rocm)}")
