"""Gate: the Triton kernels of a wheel compile for every promised arch, without a GPU and without ROCm.

Covered: the five entry points (forward and backward of dense and packed sequences, forward with a KV cache), fp16 and
bf16, head dims 64 and 128, causal and not, every pair of these settings, grouped heads, and the LDS limit of a
work-group. Not covered: dropout, ALiBi, fp8, autotuning, other head dims, and the numeric results.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from packaging.version import Version

from wheelfactory.build.environments import make_triton_environment
from wheelfactory.build.recipe import choose_jobs
from wheelfactory.core.progress import announced_progress, logger
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import find_cell_limits
from wheelfactory.verify.proofs import (
    PROGRAMS,
    ProgramReport,
    ProofCache,
    ProofKey,
    content_id,
    payload_sha256,
    program_environ,
    run_program,
    stand_in_environment,
    stand_in_requirements,
    stand_in_torch_version,
)
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.elf.image import EM_AMDGPU, DamagedElfError, ElfImage
from wheelfactory.wheel.elf.targets import arch_from_flags

COMPILE, LINK = PROGRAMS / "compile_kernels.py", PROGRAMS / "link_code_object.py"

# the first Triton with a built-in linker; earlier ones call ROCm's ld.lld, so this Triton links for them. Alternatives:
# Debian's lld needs root and differs between machines; ziglang's ld.lld is another 100 MB from PyPI. This Triton is in
# the matrix, so the cache usually has it
LINKER = "3.5.1"

# memory reserved for compiling all kernels for one arch; an estimate, not measured
GIB_PER_ARCH = 2.8

TIMEOUT_S = 1800.0
"""Seconds for one arch; the slowest, gfx1030 with Triton 3.2, needs 300 on one core."""

SECONDS_PER_ARCH = 54
"""Predicted seconds for one arch on one core: ten archs took 4 min 28 s on two cores (docs/reference/validate.md)."""

_REMEDY = "remove the arch or this Triton from the supported ones in matrix.yaml"


class CompiledKernel(ProgramReport):
    """A code object as Triton passed it to the driver."""

    name: str
    entry: str
    """The entry point of ``flash_attn_gpu`` that launches it."""
    header: str
    """The ELF header of the code object, in hex."""
    size: int
    """Bytes."""
    lds: int
    """Local data share of a work-group, in bytes."""


class CompileCase(ProgramReport):
    """The kernels of one call, with its backward pass if it has one."""

    name: str
    entries: tuple[str, ...]
    """The entry points that must launch kernels."""
    kernels: tuple[CompiledKernel, ...]
    error: str | None
    """The entry point that raised, and the exception."""


class CompileReport(ProgramReport):
    """The compiled kernels for one arch."""

    cases: tuple[CompileCase, ...]

    @property
    def kernels(self) -> list[CompiledKernel]:
        """The kernels of all cases."""
        return [kernel for case in self.cases for kernel in case.kernels]


def check_ahead_of_time(subject: Subject) -> GateResult:
    """Compile for each arch of the build record that has no cached result, several in parallel.

    Raises `BuildError` if torch or Triton cannot be installed.
    """
    if not subject.record.offload_archs:
        return GateResult.not_run("ahead-of-time", "the wheel promises no arch")
    payload, proofs = payload_sha256(subject.wheel), ProofCache(subject.cache / "proofs")
    keys = {arch: _proof_key(subject, arch, payload) for arch in subject.record.offload_archs}
    reports, findings = {}, []
    for arch, key in keys.items():
        cached = proofs.find(key, CompileReport)
        if cached and not any(find_compile_faults(subject, arch, cached)):
            reports[arch] = cached
    for arch, report_or_error in _compile(subject, {arch: keys[arch] for arch in keys if arch not in reports}):
        found = list(find_compile_faults(subject, arch, report_or_error))
        if isinstance(report_or_error, CompileReport):
            reports[arch] = report_or_error
            if not found:
                proofs.write(keys[arch], report_or_error)
        findings += found
    limits = dict.fromkeys(str(limit) for arch in keys for limit in find_cell_limits(subject, arch))
    return GateResult.from_findings(
        "ahead-of-time",
        findings,
        "; ".join([f"Triton {subject.triton} for {', '.join(keys)}", *limits]),
        versions={"flash-attn payload": payload[:16], "torch": stand_in_torch_version(), "triton": subject.triton},
        figures=_figures({arch: reports[arch] for arch in keys if arch in reports}),
    )


def _proof_key(subject: Subject, arch: str, payload: str) -> ProofKey:
    linker = (content_id(LINK), f"triton=={LINKER}") if _needs_linker(subject.triton) else ()
    arguments = (arch, *(limit.argument for limit in find_cell_limits(subject, arch)))
    return ProofKey(COMPILE, arguments, payload, (*stand_in_requirements(subject.triton, subject.aiter), *linker))


def _needs_linker(triton: str) -> bool:
    return Version(triton) < Version(LINKER)


def _compile(subject: Subject, keys: Mapping[str, ProofKey]) -> Iterator[tuple[str, CompileReport | str]]:
    """Yield the report for each arch, or the reason why there is none."""
    if not keys:
        return
    environ = program_environ(subject.environ, subject.cell)
    with stand_in_environment(subject) as environment:
        if _needs_linker(subject.triton):
            # old Tritons start the linker as a program, without arguments of ours
            linker = environment.folder / "ld.lld"
            command = [make_triton_environment(subject.cache, LINKER).python, "-I", "-B", LINK]
            linker.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n', encoding="utf-8")
            linker.chmod(0o755)
            environ["TRITON_HIP_LLD_PATH"] = str(linker)

        numbers = {arch: number for number, arch in enumerate(keys, 1)}

        def compile_for(arch: str) -> CompileReport | str:
            logger.info("compiling for %s (%d of %d) with Triton %s", arch, numbers[arch], len(keys), subject.triton)
            scratch = environment.folder / arch
            return run_program(
                keys[arch].command, CompileReport, environment, environ, scratch=scratch, timeout=TIMEOUT_S
            )

        with announced_progress("archs compiled") as report_progress, ThreadPoolExecutor(_jobs(subject)) as pool:
            report_progress(0, len(keys))  # shows the bar, which counts the time from here
            for done, report in enumerate(zip(keys, pool.map(compile_for, keys), strict=True), 1):
                report_progress(done, len(keys))
                yield report


def _jobs(subject: Subject) -> int:
    """The number of archs to compile for at once."""
    # too many parallel compiles get killed for memory, which looks like a bad kernel
    fitting = max(1, min(subject.host.cores, int(subject.host.memory_gib // GIB_PER_ARCH)))
    return choose_jobs(subject.environ.get("MAX_JOBS", ""), fitting)


def predict_minutes(subject: Subject) -> int:
    """The minutes to compile for every arch of the wheel, at least 1, if no result is cached."""
    rounds = math.ceil(len(subject.record.offload_archs) / _jobs(subject))
    return max(1, round(rounds * SECONDS_PER_ARCH / 60))


def find_compile_faults(subject: Subject, arch: str, report_or_error: CompileReport | str) -> Iterator[Finding]:
    """Check the report for an arch; `report_or_error` is an error message if there is no report."""
    to_compile = f"to compile for {arch} with Triton {subject.triton}"

    def finding(expected: str, found: str, remedy: str = _REMEDY) -> Finding:
        return Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=remedy)

    if isinstance(report_or_error, str):
        yield finding(to_compile, report_or_error, f"run the gate again; if it fails again, {_REMEDY}")
        return
    if not report_or_error.cases:
        yield finding(to_compile, "no case")
    for case in report_or_error.cases:
        if case.error:
            yield finding(f"{case.name} {to_compile}", case.error)
            continue
        for entry in case.entries:
            if all(kernel.entry != entry for kernel in case.kernels):
                yield finding(f"{entry} of {case.name} {to_compile}", "no kernel")
        for kernel in case.kernels:
            made_for = _arch_of(kernel)
            if made_for != arch:
                yield finding(f"{kernel.name} of {case.name} as a code object for {arch}", made_for)


def _arch_of(kernel: CompiledKernel) -> str:
    """Return the arch in a code object's header, or what it is instead."""
    try:
        header = ElfImage(bytes.fromhex(kernel.header))
    except (DamagedElfError, ValueError) as error:
        return f"no code object ({error})"
    return arch_from_flags(header.flags) if header.machine == EM_AMDGPU else f"code for machine {header.machine}"


def _figures(reports: Mapping[str, CompileReport]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for arch, report in reports.items():
        figures[f"{arch} kernels"] = len(report.kernels)
        figures[f"{arch} code object bytes"] = sum(kernel.size for kernel in report.kernels)
        figures[f"{arch} most LDS bytes"] = max((kernel.lds for kernel in report.kernels), default=0)
    return figures
