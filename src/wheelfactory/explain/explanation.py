"""Explain a build log: the kernel, the remaining time, why the build takes this long, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wheelfactory.build.recipe import GIB_PER_COMPILE
from wheelfactory.explain.build_log import FAILED, FINISHED, BuildLog
from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.kernel_meaning import KernelMeaning, find_kernel_meaning
from wheelfactory.explain.progress import ONE_HEAD_DIM, RemainingTime, estimate_remaining_time
from wheelfactory.kernels.compiler.compiler import RUNAWAY_AMD, RUNAWAY_UPSTREAM
from wheelfactory.kernels.compiler.flags import EARLY_INLINE, has_runaway_flags

WORKLOAD_CAUSES = ("out of memory", "runaway inlining", "time limit", "canceled")
"""Causes that depend on the amount of work. For other causes the remedy is the only advice."""


NO_NINJA = "the log: no ninja"
CORES = "the cores of this machine"
"""Source of the number of jobs if neither the log nor an option has it: a guess."""


@dataclass(frozen=True)
class Explanation:
    """The explanation of a log."""

    log: str
    reading: BuildLog
    kernel: KernelMeaning | None
    """The kernel that is compiling or failed; None if the log names no generated kernel."""
    remaining_time: RemainingTime | None
    """None without a compile, or for CUDA."""
    jobs_source: str
    """Source of the number of jobs: ``--jobs``, ``the log``, `NO_NINJA`, `CORES`."""
    reasons: tuple[str, ...]
    """Why it takes this long, most important first; empty if the build failed for another reason."""
    advice: tuple[str, ...]
    """What to change, most effective first; empty for a finished build."""


def explain_log(log: str, reading: BuildLog, jobs: int | None, cores: int) -> Explanation:
    """Explain the build log `reading`, whose name is `log`.

    `jobs` is the user's option; without it the number in the log counts, then the `cores` of this machine.
    """
    if jobs:
        at_once, jobs_from = jobs, "--jobs"
    elif reading.no_ninja:
        at_once, jobs_from = 1, NO_NINJA
    elif reading.jobs:
        at_once, jobs_from = reading.jobs, "the log"
    else:
        at_once, jobs_from = cores, CORES
    ahead = None
    if reading.progress and not (reading.command and reading.command.is_cuda):  # costs were measured for AMD only
        ahead = estimate_remaining_time(reading.progress, at_once, max(len(reading.archs), 1), reading.jobs or at_once)
    names = [reading.progress.current if reading.progress else "", reading.command.name if reading.command else ""]
    if reading.state == FAILED:  # the command is the first failure; other compiles ended later
        names.reverse()
    about_size = reading.state != FAILED or (reading.cause is not None and reading.cause.name in WORKLOAD_CAUSES)
    remedy = (reading.cause.remedy,) if reading.cause and reading.state != FINISHED else ()
    return Explanation(
        log=log,
        reading=reading,
        kernel=next((kernel for kernel in map(find_kernel_meaning, names) if kernel), None),
        remaining_time=ahead,
        jobs_source=jobs_from,
        reasons=tuple(_reasons(reading, ahead)) if about_size else (),
        advice=(*remedy, *(_advice(reading, ahead) if about_size and reading.state != FINISHED else ())),
    )


def _reasons(reading: BuildLog, ahead: RemainingTime | None) -> Iterator[str]:
    if reading.progress and ahead:
        total = reading.progress.total
        release = glossary().releases.get(str(total), "")
        release = f" ({release})" if release else ""
        archs = f"{ahead.archs} archs" if ahead.archs > 1 else "one arch"
        archs += "" if reading.archs else " (the log names none)"
        yield (
            f"{total} sources{release}: one for each head dim, type, mask, bias, dropout and padding; "
            f"about {ahead.cpu_hours:.0f} CPU hours for {archs} (predicted)"
        )
    if ahead and ahead.archs > 1:
        yield f"each source is compiled {ahead.archs} times, once per arch"
    if reading.command and reading.command.is_cuda:
        yield "the compiler is nvcc: this builds for CUDA; estimates exist only for ROCm"
    suspect = _suspect(reading)
    runaway = (
        f"{EARLY_INLINE}=true with function calls off: if {suspect}, compile time explodes "
        "(one kernel took over 9 minutes instead of 24 s)"
    )
    if suspect and reading.command and not reading.command.rocm:
        yield runaway
    if reading.no_ninja:
        yield "torch found no ninja, so it compiles one file at a time"
    elif reading.jobs:
        yield f"{reading.jobs} compiles at once (MAX_JOBS={reading.jobs}), regardless of the number of cores"
    elif ahead:
        yield "MAX_JOBS is not in the log; its default is one job per 2 cores or per 9 GB of memory, whichever is fewer"
    if reading.command and not reading.ccache and ahead:
        yield "no compiler cache on the command line: a build in a new directory or environment recompiles everything"
    if suspect and reading.command and reading.command.rocm:
        yield runaway


def _advice(reading: BuildLog, ahead: RemainingTime | None) -> Iterator[str]:
    if reading.command and reading.command.is_cuda:
        yield f"on an AMD GPU? {glossary().remedies['torch for ROCm']}"
    if ahead and ahead.archs > 1:
        yield (
            f"compile only for your GPU, for example GPU_ARCHS={reading.archs[0]} "
            "(PYTORCH_ROCM_ARCH for wheelfactory; setup.py ignores that)"
        )
    if reading.no_ninja:
        yield "run `pip install ninja` in the build environment"
    if ahead and not reading.cause:
        yield (
            f"set MAX_JOBS to free GiB / {GIB_PER_COMPILE}, at most the number of cores; "
            f"{ahead.jobs} jobs need {ahead.jobs * GIB_PER_COMPILE:.0f} GiB (measured with Debian's compiler)"
        )
    suspect = _suspect(reading)
    if suspect:
        yield f'if {suspect}: export HIPCC_COMPILE_FLAGS_APPEND="-mllvm {EARLY_INLINE}=false"'
    if ahead and reading.progress and reading.progress.total > ONE_HEAD_DIM:
        yield "if you need only some head dims: OPT_DIM=128 compiles a quarter (flash-attn 2.8 and newer)"
    if ahead:
        yield "compile the kernels once for all torch and Python versions: `wheelfactory kernels`, `build --kernels`"
        yield "or install a published wheel for your torch and ROCm: `wheelfactory plan` lists the cells"


def _suspect(reading: BuildLog) -> str:
    """Return the condition under which the command's flags make compile time explode; empty if they do not.

    It is a condition because the log does not contain the compiler's version.
    """
    if not reading.command or not has_runaway_flags(reading.command.arguments):
        return ""
    if reading.command.rocm:
        return f"`hipcc --version` says clang {RUNAWAY_AMD} or newer"
    return f"the compiler is not AMD's and clang {RUNAWAY_UPSTREAM} or newer"
