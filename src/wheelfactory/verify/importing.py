"""Gate: the wheel installs into a fresh environment of its cell, imports, and reports its own version."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.build.environments import clean_environ, cpu_torch_requirement, find_base
from wheelfactory.core.cell import Backend
from wheelfactory.core.errors import ProgramError
from wheelfactory.verify.cell_python import TIMEOUT_S, CellPython, no_python_result
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.proofs import (
    IMPORT_PROGRAM,
    ProgramReport,
    device_environ,
    install_and_run,
    read_report,
    stand_in_base,
)
from wheelfactory.verify.result import Finding, GateResult
from wheelfactory.wheel.read import Wheel

_IMPORT = (IMPORT_PROGRAM, "wheel")


class Imported(ProgramReport):
    """What a program prints that imported a package."""

    version: str


def check_import(subject: Subject) -> GateResult:
    """Install into a fresh environment and import as users do: without a variable that selects a backend."""
    if subject.cell.backend is Backend.TRITON:
        # with the cell's Triton from PyPI and a CPU torch: importing compiles nothing and needs no GPU
        base, detail = stand_in_base(subject), f"Triton {subject.triton}, {cpu_torch_requirement()} in place of ROCm's"
        report = install_and_run(subject, _IMPORT, Imported, base, device_environ(subject.context.environ), TIMEOUT_S)
    elif subject.python:
        report = _import_compiled(subject, subject.python)
        # the version only: the manifest is public and must contain no path of this machine
        detail = f"torch {subject.python.toolchain.torch}"
    else:
        return no_python_result("import")
    remedy = "build against the cell's torch, or fix the matrix: the wheel does not fit this torch or Triton"
    return GateResult.from_findings("import", import_findings(subject.wheel, report, remedy), detail)


def _import_compiled(subject: Subject, python: CellPython) -> Imported | str:
    """Import with the Python and torch of the cell, of this machine or where the wheel was built."""
    if python.here is None:
        try:
            return read_report(python.run([*_IMPORT, subject.wheel.path]), Imported)
        except ProgramError as error:
            return error.which.splitlines()[-1]
    base = find_base(python.here, subject.cell.python, subject.context.environ)
    return install_and_run(subject, _IMPORT, Imported, base, clean_environ(subject.context.environ), TIMEOUT_S)


def import_findings(wheel: Wheel, report: Imported | str, remedy: str) -> Iterator[Finding]:
    """Yield what is wrong with an import; `report` is the reason if it failed, for which `remedy` is."""
    file, version = wheel.path.name, str(wheel.version)
    if isinstance(report, str):
        yield Finding(file, "to install and import", report, remedy)
    elif report.version != version:
        yield Finding(file, f"version {version}", report.version, "build the wheel again")
