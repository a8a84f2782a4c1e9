"""Gate: the Triton kernels of a wheel compile for every arch that it promises, with no GPU and no ROCm.

Covered: the five entry points (forward and backward of dense and of packed sequences, forward with a cache of keys),
fp16 and bf16, head dims 64 and 128, causal and not, any two of these together, with grouped heads; and that what a
work-group needs of local data share (LDS) is there. Not covered: dropout, ALiBi, fp8, autotuning, other head dims, and
what the code computes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from packaging.version import Version

from wheelfactory.build.environments import make_triton_environment
from wheelfactory.build.recipe import choose_jobs
from wheelfactory.core.progress import logger
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

LINKER = "3.5.1"
"""The first Triton that links code objects itself. It links for those before it too, which call an ld.lld of ROCm.

It is one of the matrix, so mostly in the cache already, and pip brings it without root and the same on every machine,
neither of which holds for Debian's lld. ziglang has an ld.lld as well: 100 MB on PyPI that nothing else here needs.
"""

GIB_PER_ARCH = 2.8
"""Memory to allow for the compile of all kernels for one arch; what it takes was not measured."""

TIMEOUT_S = 1800.0
"""Seconds for one arch; the slowest, gfx1030 with Triton 3.2, takes a sixth of it on one core."""

_CURE = "take the arch, or this Triton, out of what the matrix says the release supports"


class CompiledKernel(ProgramReport):
    """A code object as the driver got it."""

    name: str
    entry: str
    """The entry point of ``flash_attn_gpu`` that launches it."""
    header: str
    """The first bytes of the code object, in hex."""
    size: int
    """Bytes."""
    lds: int
    """Bytes for a work-group."""


class CompileCase(ProgramReport):
    """A call, and its backward pass if it has one."""

    name: str
    entries: tuple[str, ...]
    """The entry points that must launch kernels."""
    kernels: tuple[CompiledKernel, ...]
    error: str | None
    """Which entry point raised, and what."""


class CompileReport(ProgramReport):
    """What was compiled for one arch."""

    cases: tuple[CompileCase, ...]

    @property
    def kernels(self) -> list[CompiledKernel]:
        """Those of all cases."""
        return [kernel for case in self.cases for kernel in case.kernels]


def check_ahead_of_time(subject: Subject) -> GateResult:
    """Compile for the archs of the build record that no proof is kept of, several at once."""
    if not subject.record.offload_archs:
        return GateResult.not_run("ahead-of-time", "the wheel promises no arch")
    payload, proofs = payload_sha256(subject.wheel), ProofCache(subject.cache / "proofs")
    questions = {arch: _question(subject, arch, payload) for arch in subject.record.offload_archs}
    reports, findings = {}, []
    for arch, question in questions.items():
        kept = proofs.find(question, CompileReport)
        if kept and not any(find_compile_faults(subject, arch, kept)):
            reports[arch] = kept
    for arch, answer in _compile(subject, {arch: questions[arch] for arch in questions if arch not in reports}):
        found = list(find_compile_faults(subject, arch, answer))
        if isinstance(answer, CompileReport):
            reports[arch] = answer
            if not found:
                proofs.write(questions[arch], answer)
        findings += found
    limits = dict.fromkeys(str(limit) for arch in questions for limit in find_cell_limits(subject, arch))
    return GateResult.from_findings(
        "ahead-of-time",
        findings,
        "; ".join([f"Triton {subject.triton} for {', '.join(questions)}", *limits]),
        versions={"flash-attn payload": payload[:16], "torch": stand_in_torch_version(), "triton": subject.triton},
        figures=_figures({arch: reports[arch] for arch in questions if arch in reports}),
    )


def _question(subject: Subject, arch: str, payload: str) -> ProofKey:
    linker = (content_id(LINK), f"triton=={LINKER}") if _needs_linker(subject.triton) else ()
    arguments = (arch, *(limit.argument for limit in find_cell_limits(subject, arch)))
    return ProofKey(COMPILE, arguments, payload, (*stand_in_requirements(subject.triton), *linker))


def _needs_linker(triton: str) -> bool:
    return Version(triton) < Version(LINKER)


def _compile(subject: Subject, questions: Mapping[str, ProofKey]) -> Iterator[tuple[str, CompileReport | str]]:
    """The report for each arch as it comes, or why there is none."""
    if not questions:
        return
    environ = program_environ(subject.environ, subject.cell.backend)
    with stand_in_environment(subject.cache, subject.wheel, subject.triton) as environment:
        if _needs_linker(subject.triton):
            linker = environment.folder / "ld.lld"  # a program of its own
            command = [make_triton_environment(subject.cache, LINKER).python, "-I", "-B", LINK]
            linker.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n', encoding="utf-8")
            linker.chmod(0o755)
            environ["TRITON_HIP_LLD_PATH"] = str(linker)

        def compile_for(arch: str) -> CompileReport | str:
            logger.info("compiling for %s with Triton %s", arch, subject.triton)
            scratch = environment.folder / arch
            return run_program(
                questions[arch].command, CompileReport, environment, environ, scratch=scratch, timeout=TIMEOUT_S
            )

        fitting = max(1, min(subject.host.cores, int(subject.host.memory_gib // GIB_PER_ARCH)))
        with ThreadPoolExecutor(choose_jobs(subject.environ.get("MAX_JOBS", ""), fitting)) as pool:
            yield from zip(questions, pool.map(compile_for, questions), strict=True)


def find_compile_faults(subject: Subject, arch: str, answer: CompileReport | str) -> Iterator[Finding]:
    """What is wrong with a report for an arch; that there is none, if `answer` is the reason."""
    to_compile = f"to compile for {arch} with Triton {subject.triton}"

    def finding(expected: str, found: str, cure: str = _CURE) -> Finding:
        return Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=cure)

    if isinstance(answer, str):
        yield finding(to_compile, answer, f"run the gate again; if it stays so, {_CURE}")
        return
    if not answer.cases:
        yield finding(to_compile, "no case")
    for case in answer.cases:
        if case.error:
            yield finding(f"{case.name} {to_compile}", case.error)
            continue
        for entry in case.entries:
            if all(kernel.entry != entry for kernel in case.kernels):
                yield finding(f"{entry} of {case.name} {to_compile}", "no kernel of it")
        for kernel in case.kernels:
            made_for = _arch_of(kernel)
            if made_for != arch:
                yield finding(f"{kernel.name} of {case.name} as a code object for {arch}", made_for)


def _arch_of(kernel: CompiledKernel) -> str:
    """What a code object is for by its own word."""
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
