"""Gate: a wheel computes attention and its gradients on an AMD GPU, with the ROCm torch of its cell.

It runs the small cases in fp16 and bf16, through the public functions of flash_attn, for both backends. The
result is never cached: it depends on the GPU, the driver and the ROCm of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wheelfactory.build.environments import find_base
from wheelfactory.build.executor import HERE, find_rocm_python, probe_python
from wheelfactory.core.cell import Backend
from wheelfactory.core.progress import logger
from wheelfactory.verify.accuracy import (
    NUMBERS_PROGRAM,
    TIMEOUT_S,
    KnownLimit,
    NumericReport,
    find_cell_limits,
    find_numeric_faults,
    find_tolerance,
    refusals,
    worst_errors,
)
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.proofs import install_and_run, payload_sha256, program_environ
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.corrections import refused_options


def check_on_gpu(subject: Subject) -> GateResult:
    """Run the cases if this machine has a promised GPU and the cell's torch; else report what is missing."""
    here, cell = subject.context.host.gpu_archs, subject.cell
    archs = [arch for arch in here if arch in subject.record.offload_archs]
    if not here:
        return GateResult.not_run("gpu", "needs an AMD GPU, but none is visible")
    if not archs:
        return GateResult.not_run("gpu", f"the GPU is {', '.join(here)}, which the wheel does not promise")
    # a Triton wheel runs with every Python that torch supports
    pythons = subject.matrix.torch[cell.torch].python if cell.backend is Backend.TRITON else (cell.python,)
    found = (find_rocm_python(replace(cell, python=python), subject.context) for python in pythons)
    python = next(filter(None, found), None)
    if python is None:
        reason = f"needs torch {cell.torch} for ROCm {cell.rocm}: put its python3 on PATH, or run in the cell's image"
        return GateResult.not_run("gpu", reason)
    limits = tuple(dict.fromkeys(limit for arch in archs for limit in find_cell_limits(subject, arch)))
    report = _compute(subject, python, archs, limits)
    where, versions = f"on {', '.join(archs)}", {}
    if isinstance(report, NumericReport):
        if report.gpu not in archs:
            computed = f"torch computes on {report.gpu or 'no AMD GPU'}"
            return GateResult.not_run("gpu", f"{computed}, but the wheel promises {', '.join(archs)}")
        where = f"on {report.gpu} with torch {report.torch}"
        used = {"gpu": report.gpu, "torch": report.torch, "triton": report.triton}
        versions = {name: version for name, version in used.items() if version}
    tolerance, refused = find_tolerance(cell), refused_options(cell)
    cases = report.cases if isinstance(report, NumericReport) else ()
    return GateResult.from_findings(
        "gpu",
        find_numeric_faults(subject.wheel.path.name, tolerance, report, where, refused),
        "; ".join([f"{where}, against float64", *map(str, limits), *refusals(cases)]),
        versions={"flash-attn payload": payload_sha256(subject.wheel)[:16], **versions},
        figures=worst_errors(report, tolerance),
    )


def _compute(subject: Subject, python: Path, archs: Sequence[str], limits: Sequence[KnownLimit]) -> NumericReport | str:
    """Return the report of the program, or the reason why it failed."""
    toolchain = probe_python(python, subject.context.environ)
    assert toolchain.python  # `find_rocm_python` compared it with the cell
    base = find_base(python, toolchain.python, subject.context.environ)
    command: list[str | Path] = [NUMBERS_PROGRAM, "flash_attn", "cuda", "small"]
    command += [limit.argument for limit in limits]
    logger.info("computing on %s with torch %s", ", ".join(archs), toolchain.torch)
    here = replace(subject, runner=HERE)  # no container of a wheel has a GPU
    environ = program_environ(subject.context.environ, subject.cell)
    return install_and_run(here, command, NumericReport, base, environ, TIMEOUT_S)
