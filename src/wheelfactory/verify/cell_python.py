"""Find the Python of a CK cell, with its torch for ROCm: on this machine, or in the image where the wheel was built."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from wheelfactory.build.environments import clean_environ
from wheelfactory.build.executor import BuildCommand, BuildHost
from wheelfactory.build.rocm_python import find_rocm_python
from wheelfactory.build.setup_py import log_path
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.files import PACKAGE_DIR, TOOLCHAIN_PROBE
from wheelfactory.core.process import capture
from wheelfactory.core.progress import ignore_progress
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.proofs import PROGRAMS
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.build_record import Toolchain
from wheelfactory.wheel.elf.scope import Scope

TIMEOUT_S = 1800
"""Seconds for one program of a gate; importing torch takes seconds, on a slow disk a minute."""


@dataclass(frozen=True)
class CellPython:
    """Runs programs with the Python of a cell."""

    rocm: str
    """The ROCm folder on that machine; empty if unknown."""
    run: Callable[[Sequence[str | Path]], str]
    """Runs a Python file with its arguments and returns its output. Raises `ProgramError` or `BuildError`."""
    here: Path | None = None
    """The interpreter, if it is of this machine and not of the cell's build host (in the image)."""

    @property
    def toolchain(self) -> Toolchain:
        """The toolchain of this Python; runs a program."""
        return Toolchain.model_validate_json(self.run([TOOLCHAIN_PROBE]))

    def read_scope(self, needed: Sequence[str]) -> Scope:
        """Return the scope in which the loader resolves an extension that needs these libraries."""
        return TypeAdapter(Scope).validate_json(self.run([PROGRAMS / "read_scope.py", self.rocm, *needed]))


def find_cell_python(subject: Subject) -> CellPython | None:
    """Find the Python of a cell on its build host if it has one, else on this machine; None if there is none."""
    build_host = subject.runner.find_gate_host(subject.cell)
    if build_host:
        return CellPython(str(build_host.machine.rocm_path), partial(_run_on_build_host, subject, build_host))
    python = find_rocm_python(subject.cell, subject.context)
    if python is None:
        return None
    environ, rocm = clean_environ(subject.environ), subject.host.rocm_path
    return CellPython(str(rocm or ""), lambda program: capture([python, "-IB", *program], environ=environ), python)


def no_python_result(gate: str) -> GateResult:
    """Return the result of a gate for which no Python was found."""
    return GateResult.not_run(
        gate, "needs the ROCm torch of the cell: put its python3 on PATH, or use --executor docker"
    )


def _run_on_build_host(subject: Subject, build_host: BuildHost, program: Sequence[str | Path]) -> str:
    """Run a program where the cell was built; it can read only the wheel and this package."""
    name = f"{subject.cell.id}.{Path(program[0]).stem}"
    log = log_path(subject.cache, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = BuildCommand(
        name=name,
        argv=(str(build_host.python), "-IB", *map(str, program)),
        environ=build_host.environ,
        log=log,
        reads=(TOOLCHAIN_PROBE, PACKAGE_DIR, subject.wheel.path),
        writes=(),  # it runs unverified code of the wheel
        deadline=time.time() + TIMEOUT_S,
    )
    try:
        return build_host.run(command, ignore_progress)
    except RunAgainError:
        raise BuildError("program timed out", name, f"it was stopped after {TIMEOUT_S} s; read {log}") from None
