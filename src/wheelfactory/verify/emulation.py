"""Gate: the Triton kernels of a wheel compute attention and its gradients on an emulator of every promised arch.

Triton compiles each kernel for the arch, and an emulator executes the machine code, without a GPU and without ROCm.
Covered for each arch: the five entry points (forward and backward of dense and packed sequences, forward with a KV
cache), fp16 and bf16, head dims 24, 32, 64 and 128, causal and not, grouped heads, layouts, empty rows, dropout, and
the limits of local memory. The first arch also computes every other case of the small suite, with each option.
Not covered: fp8, autotuning, and what docs/explanation/emulation.md names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from packaging.version import Version

from wheelfactory.build.environments import (
    make_numpy_environment,
    make_triton_environment,
    numpy_requirements,
    open_wheel_environment,
)
from wheelfactory.build.setup_py import choose_jobs
from wheelfactory.core.files import write_launcher
from wheelfactory.core.progress import announced_progress, logger
from wheelfactory.emulator.findings import emulator_id
from wheelfactory.verify.accuracy import (
    NumericReport,
    find_cell_limits,
    find_numeric_faults,
    find_tolerance,
    refusals,
    worst_errors,
)
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.programs.attention_cases import SUITES
from wheelfactory.verify.proofs import (
    PROGRAMS,
    ProgramReport,
    ProofCache,
    ProofKey,
    content_id,
    payload_sha256,
    program_environ,
    run_program,
    stand_in_base,
    stand_in_requirements,
    stand_in_torch_version,
)
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.corrections import refused_options

EXECUTE, LINK = PROGRAMS / "execute_kernels.py", PROGRAMS / "link_code_object.py"

# the first Triton with a built-in linker; earlier ones call ROCm's ld.lld, so this Triton links for them. Alternatives:
# Debian's lld needs root and differs between machines; ziglang's ld.lld is another 100 MB from PyPI. This Triton is in
# the matrix, so the cache usually has it
LINKER = "3.5.1"

# memory reserved for one arch; an estimate, not measured
GIB_PER_ARCH = 2.8

TIMEOUT_S = 1800.0
"""Seconds for one arch; gfx1030 needs about 60 on one core, and a machine can be busy."""

SECONDS_PER_ARCH = 25
"""Predicted seconds for one arch on one core (docs/explanation/emulation.md)."""

ORDERS = ("reversed", "forward", "3")
"""The orders of work-groups and waves (the last is the seed of a shuffle), in turn for the archs of a wheel."""


class EmulatedKernel(ProgramReport):
    """The variants of a kernel: how often they ran, and the most of each resource that one of them takes."""

    name: str
    variants: int
    launches: int
    instructions: int
    """Of all waves."""
    vector_registers: int
    scalar_registers: int
    local: int
    """Bytes of local memory of a work-group."""
    scratch: int
    """Bytes of one lane."""
    vector_spills: int
    """Registers that the compiler keeps in scratch memory; they make a kernel slow."""
    scalar_spills: int

    def describe(self) -> str:
        """Return name, registers, spills and memory in one line."""
        spills = f", {self.vector_spills} spilled" if self.vector_spills else ""
        return f"{self.name} {self.vector_registers} registers{spills}, {self.local} bytes of local memory"


class EmulationReport(NumericReport):
    """The errors of a wheel's functions for one arch, and the kernels that computed them."""

    arch: str
    kernels: tuple[EmulatedKernel, ...]


def device_phrase(arch: str) -> str:
    """Return what reports say of results: never "on a GPU"."""
    return f"in emulation for {arch}"


def check_in_emulation(subject: Subject) -> GateResult:
    """Compile and execute for each arch of the build record that has no cached result, several in parallel.

    Raises `BuildError` if torch or Triton cannot be installed.
    """
    archs = subject.record.offload_archs
    if not archs:
        return GateResult.not_run("emulation", "the wheel promises no arch")
    reports = emulate(subject, {arch: "arch" if number else "first" for number, arch in enumerate(archs)})
    findings = [finding for arch in archs for finding in _faults(subject, arch, reports[arch])]
    whole = {arch: report for arch, report in reports.items() if isinstance(report, EmulationReport)}
    missing = [case.not_run for report in whole.values() for case in report.cases if case.not_run]
    if missing and not findings:
        return GateResult.not_run("emulation", f"the emulator lacks {missing[0]}, for {len(missing)} cases")
    limits = dict.fromkeys(str(limit) for arch in archs for limit in find_cell_limits(subject, arch))
    refused = refusals(case for report in whole.values() for case in report.cases)
    detail = (f"Triton {subject.triton} for {', '.join(archs)}, against float64", *limits, *refused)
    return GateResult.from_findings(
        "emulation",
        findings,
        "; ".join(detail),
        versions={
            "flash-attn payload": payload_sha256(subject.wheel)[:16],
            "torch": stand_in_torch_version(),
            "triton": subject.triton,
        },
        figures={name: value for report in whole.values() for name, value in _figures(subject, report).items()},
    )


def emulate(subject: Subject, suites: Mapping[str, str]) -> dict[str, EmulationReport | str]:
    """Return for each arch the cached or new report of its suite, or the reason why there is none.

    Caches reports without faults. Raises `BuildError` if torch or Triton cannot be installed.
    """
    payload, proofs = payload_sha256(subject.wheel), ProofCache(subject.cache / "proofs")
    keys = {
        arch: _proof_key(subject, arch, suite, order, payload)
        for (arch, suite), order in zip(suites.items(), cycle(ORDERS), strict=False)
    }

    def is_right(report: EmulationReport) -> bool:
        complete = not any(case.not_run for case in report.cases)
        return complete and not any(_faults(subject, report.arch, report))

    cached = {arch: proofs.find(key, EmulationReport, is_right) for arch, key in keys.items()}
    reports: dict[str, EmulationReport | str] = {arch: report for arch, report in cached.items() if report}
    for arch, report in _execute(subject, {arch: key for arch, key in keys.items() if arch not in reports}):
        reports[arch] = proofs.keep(keys[arch], report, is_right)
    return {arch: reports[arch] for arch in suites}


def _proof_key(subject: Subject, arch: str, suite: str, order: str, payload: str) -> ProofKey:
    linker = (content_id(LINK), f"triton=={LINKER}") if needs_linker(subject.triton) else ()
    patterns = (limit.argument for limit in find_cell_limits(subject, arch))
    requirements = (*stand_in_requirements(subject.triton, subject.required), *numpy_requirements())
    arguments = (arch, suite, "--order", order, *patterns)
    return ProofKey(EXECUTE, arguments, payload, (*requirements, emulator_id(), *linker))


def needs_linker(triton: str) -> bool:
    """Whether this Triton links code objects by ROCm's ``ld.lld``."""
    return Version(triton) < Version(LINKER)


def linker_environ(folder: Path, cache: Path) -> dict[str, str]:
    """Write an ``ld.lld`` into `folder` that works without ROCm; return the variable by which Triton finds it."""
    # old Tritons start the linker as a program, without arguments of ours
    linker = folder / "ld.lld"
    write_launcher(linker, [make_triton_environment(cache, LINKER).python, "-I", "-B", LINK])
    return {"TRITON_HIP_LLD_PATH": str(linker)}


def _execute(subject: Subject, keys: Mapping[str, ProofKey]) -> Iterator[tuple[str, EmulationReport | str]]:
    """Yield the report for each arch, or the reason why there is none."""
    if not keys:
        return
    environ, numpy = program_environ(subject.context.environ, subject.cell), make_numpy_environment(subject.cache)
    with open_wheel_environment(subject.cache, stand_in_base(subject, numpy), *subject.wheels()) as environment:
        if needs_linker(subject.triton):
            environ |= linker_environ(environment.folder, subject.cache)
            linker = make_triton_environment(subject.cache, LINKER).folder
            environment = replace(environment, layers=(*environment.layers, linker))
        cases = {arch: len(SUITES[key.arguments[1]]) for arch, key in keys.items()}
        done = dict.fromkeys(keys, 0)

        def execute_for(arch: str) -> EmulationReport | str:
            def report_cases(number: int) -> None:
                done[arch] = number
                report_progress(sum(done.values()), sum(cases.values()))

            logger.info("executing for %s with Triton %s", arch, subject.triton)
            report_cases(0)  # shows the bar, which counts the time from here
            command, scratch = keys[arch].command, environment.folder / arch
            report = run_program(
                *(command, EmulationReport, environment.python, environ),
                scratch=scratch,
                timeout=TIMEOUT_S,
                report_cases=report_cases,
                runner=subject.runner,
                reads=environment.reads,
            )
            report_cases(cases[arch])
            return report

        with announced_progress("cases executed") as report_progress, ThreadPoolExecutor(_jobs(subject)) as pool:
            yield from zip(keys, pool.map(execute_for, keys), strict=True)


def _jobs(subject: Subject) -> int:
    """The number of archs to execute at once."""
    # too many parallel compiles get killed for memory, which looks like a bad kernel
    fitting = max(1, min(subject.context.host.cores, int(subject.context.host.memory_gib // GIB_PER_ARCH)))
    return choose_jobs(subject.context.environ.get("MAX_JOBS", ""), fitting)


def predict_minutes(subject: Subject, archs: int) -> int:
    """The minutes for a number of archs, at least 1, if no result is cached."""
    return max(1, round(math.ceil(archs / _jobs(subject)) * SECONDS_PER_ARCH / 60))


def _faults(subject: Subject, arch: str, report: EmulationReport | str) -> Iterator[Finding]:
    refused = refused_options(subject.cell)
    return find_numeric_faults(
        subject.wheel.path.name, find_tolerance(subject.cell), report, device_phrase(arch), refused
    )


def _figures(subject: Subject, report: EmulationReport) -> dict[str, float]:
    figures = {
        f"{report.arch} {name}": error for name, error in worst_errors(report, find_tolerance(subject.cell)).items()
    }
    for kernel in report.kernels:
        name = f"{report.arch} {kernel.name}"
        figures[f"{name} vector registers"] = kernel.vector_registers
        figures[f"{name} spilled registers"] = kernel.vector_spills
        figures[f"{name} local memory bytes"] = kernel.local
    return figures
