"""Explain a log: the kernel, the time left, why it takes this long, what to change, and which wheel needs no build."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wheelfactory.build.setup_py import GIB_PER_COMPILE
from wheelfactory.core.cell import Backend, Cell, major_minor
from wheelfactory.core.label import Label, index_path
from wheelfactory.explain.build_log import FAILED, FINISHED, BuildLog
from wheelfactory.explain.causes import symptom_table
from wheelfactory.explain.compiler_command import CompilerCommand, KernelMeaning, find_kernel_meaning
from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.progress import ONE_HEAD_DIM, RemainingTime, estimate_remaining_time
from wheelfactory.kernels.compiler.costs import PARSING_CPU_S
from wheelfactory.kernels.compiler.hipcc import EARLY_INLINE, RUNAWAY_AMD, RUNAWAY_UPSTREAM, has_runaway_flags
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix

WORKLOAD_CAUSES = ("out of memory", "runaway inlining", "time limit", "canceled")
"""Causes that depend on the amount of work. For other causes the remedy is the only advice."""

JOBS_WITHOUT_NINJA = "the log (ninja not found)"
# source of the number of jobs if neither the log nor an option has it: a guess
JOBS_FROM_CORES = "the cores of this machine"

_READ_THE_LOG = (
    "read the log after its first `FAILED:` or `error:`: that line names what broke. If several compiles mix their "
    "output, build again with MAX_JOBS=1"
)


DOCTOR_LINE = (
    "a prebuilt wheel needs no build; SITE's doctor names the one for your torch and GPU: "
    "`curl -O SITE/doctor.py && python3 doctor.py SITE`"
)
"""SITE is the address of a site of wheels, as in README."""

_TORCH = re.compile(r"(\d+)\.(\d+)[^+]*(?:\+rocm(\d+)\.(\d+))?")


@dataclass(frozen=True)
class Explanation:
    """The explanation of a log."""

    log_name: str
    build_log: BuildLog
    kernel: KernelMeaning | None
    """The kernel that is compiling or failed; None if the log names no generated kernel."""
    remaining_time: RemainingTime | None
    """None if the log has no compile step, or for CUDA builds."""
    jobs_source: str
    """Source of the number of jobs: ``--jobs``, ``the log``, `JOBS_WITHOUT_NINJA`, `JOBS_FROM_CORES`."""
    reasons: tuple[str, ...]
    """Why it takes this long, most important first; empty if the build failed for another reason."""
    advice: tuple[str, ...]
    """What to change, most effective first; empty for a finished build."""
    wheel: str = ""
    """The command that installs the wheel which makes the build unnecessary, or names it; empty if there is none."""


def explain_log(log_name: str, build_log: BuildLog, jobs: int | None, cores: int, wheel: str = "") -> Explanation:
    """Explain a parsed log; `log_name` is its file name, and `wheel` its `find_wheel_line`.

    `jobs` is the user's option. If it is None, the number of jobs comes from the log, or else from the `cores` of this
    machine.
    """
    sources = ((jobs, "--jobs"), (1 if build_log.no_ninja else None, JOBS_WITHOUT_NINJA), (build_log.jobs, "the log"))
    parallel_jobs, jobs_source = next(((count, source) for count, source in sources if count), (cores, JOBS_FROM_CORES))
    progress, command, remaining = build_log.progress, build_log.command, None
    if progress and not build_log.is_cuda:  # costs were measured for AMD only
        archs, jobs_so_far = max(len(build_log.archs), 1), build_log.jobs or parallel_jobs
        remaining = estimate_remaining_time(progress, parallel_jobs, archs, jobs_so_far)
    names = [(progress and progress.current) or "", command.name if command else ""]
    if build_log.state == FAILED:
        # prefer the command: it is the first that failed, and progress may name a later compile
        names.reverse()
    cause, is_failed = build_log.cause, build_log.state == FAILED
    about_size = not is_failed or (cause is not None and cause.name in WORKLOAD_CAUSES)
    remedy = (cause.remedy if cause else _READ_THE_LOG,) if is_failed else ()
    return Explanation(
        log_name=log_name,
        build_log=build_log,
        kernel=next((kernel for kernel in map(find_kernel_meaning, names) if kernel), None),
        remaining_time=remaining,
        jobs_source=jobs_source,
        reasons=tuple(_reasons(build_log, remaining)) if about_size else (),
        advice=(*remedy, *(_advice(build_log, remaining) if about_size and build_log.state != FINISHED else ())),
        wheel=wheel,
    )


def _reasons(build_log: BuildLog, remaining: RemainingTime | None) -> Iterator[str]:
    command, condition = build_log.command, _runaway_condition(build_log)
    # this factory compiles device code and host code apart, with precompiled headers, and keeps them
    is_ordinary = command is not None and not {"--cuda-device-only", "--cuda-host-only"} & {*command.arguments}
    if remaining and build_log.progress:
        yield from _reasons_of_size(build_log, build_log.progress.total, remaining, reads_headers=is_ordinary)
    if command and command.is_cuda:
        yield from _cuda_reasons(command)
    slow = "compile time explodes (one kernel took over 9 minutes instead of 24 s)"
    runaway = f"{EARLY_INLINE}=true with function calls off: if {condition}, {slow}"
    if condition and command and not command.rocm:
        yield runaway
    if build_log.no_ninja:
        yield "torch found no ninja, so it compiles one file at a time"
    elif build_log.jobs:
        yield f"{build_log.jobs} compiles at once (MAX_JOBS={build_log.jobs}), regardless of the number of cores"
    elif remaining:
        yield "MAX_JOBS is not in the log; its default is one job per 2 cores or per 9 GB of memory, whichever is fewer"
    if is_ordinary and not build_log.ccache and remaining:
        yield "no compiler cache on the command line: a build in a new directory or environment recompiles everything"
    if condition and command and command.rocm:
        yield runaway


def _cuda_reasons(command: CompilerCommand) -> Iterator[str]:
    # sources of numbers and variables: setup.py of 2.7.4 to 2.8.3
    yield "the compiler is nvcc: this builds for NVIDIA GPUs; times are predicted for ROCm only"
    if len(command.archs) > 1:
        yield f"each source is compiled {len(command.archs)} times, once per arch ({', '.join(command.archs)})"
    if threads := next((word.partition("=")[2] for word in command.arguments if word.startswith("--threads=")), ""):
        yield f"each nvcc uses {threads} threads (NVCC_THREADS={threads}); with 4 threads it needs 8 to 9 GB of memory"


def _reasons_of_size(
    build_log: BuildLog, total: int, remaining: RemainingTime, *, reads_headers: bool
) -> Iterator[str]:
    release = glossary().releases_by_source_count.get(str(total))
    named = f" ({release})" if release else ""
    archs = f"{remaining.archs} archs" if remaining.archs > 1 else "one arch"
    archs += "" if build_log.archs else " (the log names none)"
    mix = "one for each mix of head dim, type, mask, bias, dropout and padding"
    yield f"{total} sources{named}: {mix}; about {remaining.cpu_hours:.0f} CPU hours for {archs} (predicted)"
    if remaining.archs > 1:
        yield f"each source is compiled {remaining.archs} times, once per arch"
    if reads_headers:
        parsing_s = PARSING_CPU_S * (remaining.archs + 1)  # once for each arch and once for the host
        yield f"each source reads Composable Kernel's headers again: {parsing_s:.0f} CPU s, half of a light kernel"


def _advice(build_log: BuildLog, remaining: RemainingTime | None) -> Iterator[str]:
    command = build_log.command
    if command and command.is_cuda:
        if command.archs[1:]:
            number = command.archs[0].removeprefix("sm_")
            yield f"compile only for your GPU, for example FLASH_ATTN_CUDA_ARCHS={number}"
        yield "or install one of flash-attn's own wheels for CUDA, which its releases on GitHub have"
        yield f"on an AMD GPU? {symptom_table().remedies['torch for ROCm']}"
    if remaining and remaining.archs > 1:
        example = f"GPU_ARCHS={build_log.archs[0]} (PYTORCH_ROCM_ARCH for wheelfactory; setup.py ignores that)"
        yield f"compile only for your GPU, for example {example}"
    if build_log.no_ninja:
        yield "run `pip install ninja` in the build environment"
    if remaining and not build_log.cause:
        gib = remaining.jobs * GIB_PER_COMPILE
        needed = f"{remaining.jobs} jobs need {gib:.0f} GiB (measured with Debian's compiler)"
        yield f"set MAX_JOBS to the free memory in GiB / {GIB_PER_COMPILE}, at most the number of cores; {needed}"
    if condition := _runaway_condition(build_log):
        yield f'if {condition}: `export HIPCC_COMPILE_FLAGS_APPEND="-mllvm {EARLY_INLINE}=false"`'
    if remaining and build_log.progress and build_log.progress.total > ONE_HEAD_DIM:
        yield "if you need only some head dims: OPT_DIM=128 compiles only a quarter (flash-attn 2.8 and newer)"
    if remaining:
        yield "compile the kernels once for all torch and Python versions: `wheelfactory kernels`, `build --kernels`"
        yield "or install a published wheel: `wheelfactory doctor SITE` prints the command for your torch and ROCm"


def _runaway_condition(build_log: BuildLog) -> str:
    """Return the condition under which the command's flags make compile time explode; empty if they do not."""
    # only a condition, because the log does not contain the compiler's version
    if not build_log.command or not has_runaway_flags(build_log.command.arguments):
        return ""
    if build_log.command.rocm:
        return f"`hipcc --version` says clang {RUNAWAY_AMD} or newer"
    return f"the compiler is upstream clang {RUNAWAY_UPSTREAM} or newer"


def find_wheel_line(build_log: BuildLog, matrix: Matrix) -> str:
    """Return the install command of the wheel for the torch of a failed log; the doctor's command if that is unknown.

    Empty if nothing failed, for a CUDA build, and if no wheel changes anything.
    """
    if build_log.state != FAILED or build_log.is_cuda or (build_log.cause and not build_log.cause.wheel):
        return ""
    cell = _find_triton_cell(build_log, matrix)
    if cell is None:
        return DOCTOR_LINE
    torch, archs = cell.torch.rpartition(".")[0], ", ".join(build_log.archs)
    install = f"pip install --index-url SITE/{index_path(Label.from_cell(cell).index_key)}/ flash-attn"
    what = f"a Triton wheel for torch {torch}{f' and {archs}' * bool(archs)} needs no build"
    return f"{what}: `{install}`; or run the doctor of SITE: `curl -O SITE/doctor.py && python3 doctor.py SITE`"


def _find_triton_cell(build_log: BuildLog, matrix: Matrix) -> Cell | None:
    """Return the cell of the newest release for a torch; its ROCm is torch's own if possible, else the newest.

    A Triton wheel does not depend on ROCm's number: the payloads for two ROCms are equal.
    """
    match = _TORCH.match(build_log.torch)
    if match is None:
        return None
    torch, rocm = (int(match[1]), int(match[2])), (int(match[3] or 0), int(match[4] or 0))
    released = [cell for cell in expand(matrix).cells if cell.backend is Backend.TRITON and not cell.commit]
    same = [cell for cell in released if major_minor(cell.torch) == torch]
    cells = [cell for cell in same if set(build_log.archs) <= set(matrix.archs(cell))]
    return max(cells, key=lambda cell: (major_minor(cell.rocm) == rocm, major_minor(cell.rocm)), default=None)
