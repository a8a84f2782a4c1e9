"""Find the Python of a CK cell, with its torch for ROCm: on this machine, or in the image where the wheel was built."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from wheelfactory.build.environments import clean_environ
from wheelfactory.build.executor import BuildCommand, BuildHost, GateRunner, find_rocm_python, probe_python
from wheelfactory.build.setup_py import log_path
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.files import PACKAGE_DIR, TOOLCHAIN_PROBE
from wheelfactory.core.process import capture
from wheelfactory.core.progress import ignore_progress
from wheelfactory.matrix.facts import Context
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.elf.dynamic import Scope
from wheelfactory.wheel.read import Toolchain

TIMEOUT_S = 1800
"""Seconds for one program of a gate; importing torch takes seconds, on a slow disk a minute."""


_READ_SCOPE = Path(__file__).with_name("programs") / "read_scope.py"


@dataclass(frozen=True)
class CellPython:
    """Runs programs with the Python of a cell."""

    rocm: Path | None
    """The ROCm folder on that machine; None if unknown."""
    run: Callable[[Sequence[str | Path]], str]
    """Runs a Python file with its arguments and returns its output. Raises `ProgramError` or `BuildError`."""
    toolchain: Toolchain
    here: Path | None = None
    """The interpreter, if it is of this machine and not of the cell's build host (in the image)."""

    def read_scope(self, needed: Sequence[str]) -> Scope:
        """Return the scope in which the loader resolves an extension that needs these libraries."""
        return TypeAdapter(Scope).validate_json(self.run([_READ_SCOPE, str(self.rocm or ""), *needed]))


def find_cell_python(cell: Cell, wheel: Path, runner: GateRunner, context: Context) -> CellPython | None:
    """Find the Python of a cell on its build host if it has one, else on this machine; None if there is none.

    On the build host, programs can read only the wheel and this package. Raises the errors of `CellPython.run`.
    """
    if build_host := runner.find_gate_host(cell):
        run = partial(_run_on_build_host, build_host, cell, wheel, context.cache)
        return CellPython(build_host.machine.rocm_path, run, Toolchain.model_validate_json(run([TOOLCHAIN_PROBE])))
    python, environ = find_rocm_python(cell, context), clean_environ(context.environ)
    if python is None:
        return None
    toolchain = probe_python(python, context.environ)

    def run_here(program: Sequence[str | Path]) -> str:
        return capture([python, "-IB", *program], environ=environ)

    return CellPython(context.host.rocm_path, run_here, toolchain, python)


def no_python_result(gate: str) -> GateResult:
    """Return the result of a gate for which no Python was found."""
    return GateResult.not_run(
        gate, "needs the ROCm torch of the cell: put its python3 on PATH, or use --executor docker"
    )


def _run_on_build_host(
    build_host: BuildHost, cell: Cell, wheel: Path, cache: Path, program: Sequence[str | Path]
) -> str:
    name = f"{cell.id}.{Path(program[0]).stem}"
    log = log_path(cache, name)
    command = BuildCommand(
        name=name,
        argv=(str(build_host.python), "-IB", *map(str, program)),
        environ=build_host.environ,
        log=log,
        reads=(TOOLCHAIN_PROBE, PACKAGE_DIR, wheel),
        writes=(),  # it runs unverified code of the wheel
        deadline=time.time() + TIMEOUT_S,
    )
    try:
        return build_host.run(command, ignore_progress)
    except RunAgainError:
        raise BuildError("program timed out", name, f"it was stopped after {TIMEOUT_S} s; read {log}") from None
