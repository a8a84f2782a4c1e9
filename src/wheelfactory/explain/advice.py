"""A reading and its forecast -> why the build takes this long, and what to change."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.build.recipe import GIB_PER_COMPILE
from wheelfactory.explain.command import Command
from wheelfactory.explain.forecast import ONE_HEAD_DIM, RELEASES, Forecast
from wheelfactory.explain.known_causes import ROCM_TORCH
from wheelfactory.explain.reading import FAILED, FINISHED, Reading
from wheelfactory.kernels.compiler.compiler import RUNAWAY_AMD, RUNAWAY_UPSTREAM
from wheelfactory.kernels.compiler.flags import EARLY_INLINE, is_runaway

TOO_MUCH = ("out of memory", "runaway inlining", "time limit", "canceled")
"""Causes that lie in how much is compiled; after any other the remedy alone is what to change."""


def reasons(reading: Reading, forecast: Forecast | None) -> tuple[str, ...]:
    """Why it takes this long, the weightiest first; nothing for a build that failed of something else."""
    return tuple(_reasons(reading, forecast)) if _is_about_size(reading) else ()


def _is_about_size(reading: Reading) -> bool:
    return reading.state != FAILED or (reading.cause is not None and reading.cause.name in TOO_MUCH)


def _reasons(reading: Reading, forecast: Forecast | None) -> Iterator[str]:
    if reading.progress and forecast:
        total = reading.progress.total
        release = f" ({RELEASES[total]})" if total in RELEASES else ""
        yield (
            f"{total} sources{release}: one for each head dim, type, mask, bias, dropout and padding; "
            f"about {forecast.cpu_hours:.0f} CPU hours for {_archs(reading)} (predicted)"
        )
    if forecast and forecast.archs > 1:
        yield f"each source is compiled {forecast.archs} times, for one arch after another"
    if reading.command and reading.command.is_cuda:
        yield "the compiler is nvcc: this builds for CUDA, not for ROCm, of which alone something is known here"
    runaway = reading.command if reading.command and is_runaway(reading.command.words) else None
    if runaway and not runaway.rocm:
        yield _runaway_reason(runaway)
    if reading.no_ninja:
        yield "torch found no ninja, so one file is compiled after another"
    elif reading.jobs:
        yield f"{reading.jobs} compiles at once (MAX_JOBS={reading.jobs}), whatever cores there are"
    elif forecast:
        yield "MAX_JOBS is not in the log; if unset, flash-attn starts a job for 2 cores and 9 GB, whichever is fewer"
    if reading.command and not reading.ccache and forecast:
        yield "no compiler cache on the command line: a build in a new folder or environment compiles all again"
    if runaway and runaway.rocm:
        yield _runaway_reason(runaway)


def _runaway_reason(command: Command) -> str:
    return (
        f"{EARLY_INLINE}=true with function calls off: if {_runaway(command)}, it runs away on the pair "
        "(a kernel took over 9 minutes, not 24 s)"
    )


def advice(reading: Reading, forecast: Forecast | None) -> tuple[str, ...]:
    """What to change, the most effective first; nothing for a build that is finished."""
    if reading.state == FINISHED:
        return ()
    remedy = (reading.cause.remedy,) if reading.cause else ()
    return (*remedy, *(_advice(reading, forecast) if _is_about_size(reading) else ()))


def _advice(reading: Reading, forecast: Forecast | None) -> Iterator[str]:
    if reading.command and reading.command.is_cuda:
        yield f"on an AMD GPU? {ROCM_TORCH}"
    if forecast and forecast.archs > 1:
        yield (
            f"compile for your GPU alone: GPU_ARCHS={reading.archs[0]}, say "
            "(PYTORCH_ROCM_ARCH for wheelfactory; setup.py ignores that)"
        )
    if reading.no_ninja:
        yield "pip install ninja into the environment that builds"
    if forecast and not reading.cause:
        yield (
            f"MAX_JOBS by memory: free GiB / {GIB_PER_COMPILE}, at most the cores; "
            f"{forecast.jobs} jobs need {forecast.jobs * GIB_PER_COMPILE:.0f} GiB (measured with Debian's compiler)"
        )
    if reading.command and is_runaway(reading.command.words):
        yield f'if {_runaway(reading.command)}: export HIPCC_COMPILE_FLAGS_APPEND="-mllvm {EARLY_INLINE}=false"'
    if forecast and reading.progress and reading.progress.total > ONE_HEAD_DIM:
        yield "need only some head dims? OPT_DIM=128 compiles a quarter (flash-attn 2.8 and newer)"
    if forecast:
        yield "compile the kernels once for every torch and Python: wheelfactory kernels SET, then build --kernels"
        yield "or install a ready wheel for your torch and ROCm: wheelfactory plan shows the cells"


def _runaway(command: Command) -> str:
    """Which compiler runs away on upstream's inlining flags; its version is not in the log."""
    if command.rocm:
        return f"`hipcc --version` says clang {RUNAWAY_AMD} or newer"
    return f"the compiler is not AMD's and clang {RUNAWAY_UPSTREAM} or newer"


def _archs(reading: Reading) -> str:
    if not reading.archs:
        return "one arch, as the log names none"
    return "one arch" if len(reading.archs) == 1 else f"{len(reading.archs)} archs"
