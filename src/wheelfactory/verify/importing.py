"""Gate: the wheel installs into a fresh environment of its cell, imports, and reports its own version."""

from __future__ import annotations

from pathlib import Path

from wheelfactory.build.environments import (
    clean_environ,
    cpu_torch_requirement,
    find_package_folders,
    make_build_environment,
    make_layered_environment,
    make_triton_environment,
    pip_install,
)
from wheelfactory.build.rocm_python import find_rocm_python, probe_python
from wheelfactory.core.cell import Backend
from wheelfactory.core.errors import BuildError, ProgramError
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.process import failure_reason, run
from wheelfactory.verify.cell_python import CellPython, find_cell_python, no_python_result
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.proofs import PROGRAMS
from wheelfactory.verify.result import Finding, GateResult

_IMPORT = PROGRAMS / "import_wheel.py"


def check_import(subject: Subject) -> GateResult:
    """Install into a fresh environment and import as users do: without a variable that selects a backend."""
    if subject.cell.backend is Backend.TRITON:
        return _import_triton(subject)
    cell_python = find_cell_python(subject)
    if cell_python and cell_python.on_build_host:
        return _import_on_build_host(subject, cell_python)
    python = find_rocm_python(subject.cell, subject.context)
    if python is None:
        return no_python_result("import")
    layers = find_package_folders(python, clean_environ(subject.environ))
    findings = _install_and_import(subject, python, subject.cell.python, layers)
    # the version only: the manifest is public and must contain no path of this machine
    return GateResult.from_findings("import", findings, f"torch {probe_python(python, subject.environ).torch}")


def _import_on_build_host(subject: Subject, python: CellPython) -> GateResult:
    """Import where the cell was built, with that Python and torch."""
    try:
        output = python.run([_IMPORT, subject.wheel.path])
    except ProgramError as error:
        return GateResult.from_findings("import", [_not_imported(subject, error.which.splitlines()[-1])])
    return GateResult.from_findings("import", _check_version(subject, output), f"torch {python.toolchain.torch}")


def _import_triton(subject: Subject) -> GateResult:
    """Import with the cell's Triton from PyPI and a CPU torch: importing compiles nothing and needs no GPU."""
    torch = make_build_environment(subject.cache)
    layers = [torch.site_packages, make_triton_environment(subject.cache, subject.triton).site_packages]
    findings = _install_and_import(subject, torch.python, torch.version, layers)
    return GateResult.from_findings(
        "import", findings, f"Triton {subject.triton}, {cpu_torch_requirement()} in place of ROCm's"
    )


def _install_and_import(subject: Subject, base: Path, version: str, layers: list[Path]) -> list[Finding]:
    with scratch_dir(subject.cache) as scratch:
        environment = make_layered_environment(scratch / "env", base, version, layers)
        kernels = subject.kernel_wheels()
        try:
            # no index: the layers hold the requirements, and pip must not replace ROCm's torch
            pip_install(environment, "--no-deps", "--no-index", subject.wheel.path, *kernels)
        except BuildError as error:
            return [_finding(subject, "to install", error.which.splitlines()[-1], "build the wheel again")]
        environ = clean_environ(subject.environ)
        done = run([environment.python, "-I", "-B", _IMPORT], environ=environ, cwd=environment.folder)
    if done.returncode:
        return [_not_imported(subject, failure_reason(done))]
    return _check_version(subject, done.stdout)


def _not_imported(subject: Subject, why: str) -> Finding:
    remedy = "build against the cell's torch, or fix the matrix: the wheel does not fit this torch or Triton"
    return _finding(subject, "to import", why, remedy)


def _check_version(subject: Subject, output: str) -> list[Finding]:
    expected, found = str(subject.wheel.version), (output.splitlines() or ["no output"])[-1]
    return [] if found == expected else [_finding(subject, f"version {expected}", found, "build the wheel again")]


def _finding(subject: Subject, expected: str, found: str, remedy: str) -> Finding:
    return Finding(file=subject.wheel.path.name, expected=expected, found=found, remedy=remedy)
