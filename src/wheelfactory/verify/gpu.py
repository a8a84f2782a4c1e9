"""Gate: a wheel computes attention and its gradients on an AMD GPU, with the ROCm torch of its cell.

The cases of the interpreter gate, in fp16 and bf16, by the public functions of flash_attn, for both backends. No
result is kept for another run: it is one of the GPU, the driver and the ROCm of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.build.environments import package_folders, wheel_environment
from wheelfactory.build.rocm_python import probe
from wheelfactory.core.cell import Backend
from wheelfactory.core.progress import logger
from wheelfactory.verify.cell_python import rocm_python
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import Limit, limits_of
from wheelfactory.verify.numbers import CHECK, STANDARDS, TIMEOUT, Numbers, figures, find_faults
from wheelfactory.verify.proofs import NoReportError, ask, payload_sha256, program_environ
from wheelfactory.verify.result import GateResult


def gpu(subject: Subject) -> GateResult:
    """Run the cases where there are a GPU that the wheel promises and the torch of the cell; else say what lacks."""
    here, cell = subject.host.gpu_archs, subject.cell
    archs = [arch for arch in here if arch in subject.record.offload_archs]
    if not here:
        return _not_run("needs an AMD GPU, and none is visible here")
    if not archs:
        return _not_run(f"the GPU here is {', '.join(here)}, which the wheel does not promise")
    python = _find_python(subject)
    if python is None:
        return _not_run(f"needs torch {cell.torch} for ROCm {cell.rocm} on PATH; run it there, or in the cell's image")
    answer = _compute(subject, python, archs)
    if isinstance(answer, Numbers) and answer.gpu not in archs:
        return _not_run(f"torch computes on {answer.gpu or 'no AMD GPU'}, and the wheel promises {', '.join(archs)}")
    return _result(subject, answer, archs)


def _not_run(why: str) -> GateResult:
    return GateResult.not_run("gpu", why)


def _find_python(subject: Subject) -> Path | None:
    """A Python with the torch of the cell for its ROCm; any that torch has is one for a Triton wheel."""
    cell = subject.cell
    pythons = subject.matrix.torch[cell.torch].python if cell.backend is Backend.TRITON else (cell.python,)
    found = (rocm_python(subject, replace(cell, python=python)) for python in pythons)
    return next((python for python in found if python), None)


def _compute(subject: Subject, python: Path, archs: Sequence[str]) -> Numbers | str:
    """What the program says, or why it says nothing."""
    toolchain = probe(python, subject.environ)
    assert toolchain.python  # or it would not have been found
    command: tuple[str | Path, ...] = (
        CHECK,
        "flash_attn",
        "cuda",
        "small",
        *(limit.argument for limit in _limits(subject, archs)),
    )
    environ = program_environ(subject.environ, subject.cell.backend)
    layers = package_folders(python, clean_environ(subject.environ))
    logger.info("computing on %s with torch %s", ", ".join(archs), toolchain.torch)
    with wheel_environment(subject.cache, subject.wheel.path, python, toolchain.python, layers) as environment:
        home = environment.folder / "home"
        try:
            return ask(command, Numbers, environment, environ, scratch=home, timeout=TIMEOUT)
        except NoReportError as error:
            return str(error)


def _limits(subject: Subject, archs: Sequence[str]) -> tuple[Limit, ...]:
    return tuple(dict.fromkeys(limit for arch in archs for limit in limits_of(subject, arch)))


def _result(subject: Subject, answer: Numbers | str, archs: Sequence[str]) -> GateResult:
    versions = {"flash-attn payload": payload_sha256(subject.wheel)[:16]}
    where = f"on {', '.join(archs)}"
    if isinstance(answer, Numbers):
        where = f"on {answer.gpu} with torch {answer.torch}"
        used = {"gpu": answer.gpu, "torch": answer.torch, "triton": answer.triton}
        versions |= {name: version for name, version in used.items() if version}
    return GateResult.of(
        "gpu",
        list(find_faults(subject.wheel.path.name, STANDARDS[subject.cell.backend], answer, where)),
        "; ".join([f"{where}, against float64", *map(str, _limits(subject, archs))]),
        versions=versions,
        figures=figures(answer, STANDARDS[subject.cell.backend]),
    )
