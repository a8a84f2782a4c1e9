"""The Python of a CK cell, with its torch for ROCm: one of this machine, or that of the image it was built in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.build.executor import BuildCommand, BuildHost
from wheelfactory.build.rocm_python import find_rocm_python
from wheelfactory.build.setup_py import log_path
from wheelfactory.core.cell import Cell
from wheelfactory.core.checkout import PACKAGE_DIR, TOOLCHAIN_PROBE
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.process import capture
from wheelfactory.core.progress import ignore_progress
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.proofs import PROGRAMS
from wheelfactory.verify.result import GateResult
from wheelfactory.wheel.build_record import Toolchain
from wheelfactory.wheel.elf.scope import Scope

TIMEOUT_S = 1800
"""How long a program of a gate may take; importing torch takes seconds, on a slow disk a minute."""


@dataclass(frozen=True)
class CellPython:
    """A way to run programs by that Python."""

    rocm: str
    """Where ROCm is there; empty if it is not known."""
    run: Callable[[Sequence[str | Path]], str]
    """Runs a Python file with its arguments and gives what it prints. Raises `BuildError`."""
    on_build_host: bool = False
    """Whether it is that of the cell's place, and not of this machine."""

    @property
    def toolchain(self) -> Toolchain:
        """Which torch it has."""
        return Toolchain.model_validate_json(self.run([TOOLCHAIN_PROBE]))

    def read_scope(self, needed: Sequence[str]) -> Scope:
        """What an extension that needs these libraries is resolved with."""
        said = json.loads(self.run([PROGRAMS / "read_scope.py", self.rocm, *needed]))
        return Scope(frozenset(said["defined"]), tuple(said["libraries"]), tuple(said["missing"]))


def find_cell_python(subject: Subject) -> CellPython | None:
    """The Python of a cell: that of its place where it has one, else one of this machine; None if there is none."""
    place = subject.find_gate_host(subject.cell)
    if place:
        return CellPython(str(place.machine.rocm_path), partial(_run_in_place, subject, place), on_build_host=True)
    python = find_local_python(subject, subject.cell)
    if python is None:
        return None
    environ, rocm = clean_environ(subject.environ), subject.host.rocm_path
    return CellPython(str(rocm or ""), lambda program: capture([python, "-IB", *program], environ=environ))


def find_local_python(subject: Subject, cell: Cell) -> Path | None:
    """A Python of this machine with the torch of a cell for its ROCm; None if there is none."""
    index = subject.matrix.rocm[cell.rocm].index
    return find_rocm_python(cell, index=index, cache=subject.cache, environ=subject.environ)


def no_python_result(gate: str) -> GateResult:
    """The result of a gate that has nobody to ask."""
    return GateResult.not_run(
        gate, "needs the ROCm torch of the cell: have it on PATH, or use --executor docker, whose image has it"
    )


def _run_in_place(subject: Subject, place: BuildHost, program: Sequence[str | Path]) -> str:
    """Run it where the cell was built; it sees the wheel, and of the factory what it imports."""
    name = f"{subject.cell.id}.{Path(program[0]).stem}"
    log = log_path(subject.cache, name)
    log.parent.mkdir(parents=True, exist_ok=True)
    errand = BuildCommand(
        name=name,
        argv=(str(place.python), "-IB", *map(str, program)),
        environ=place.environ,
        log=log,
        reads=(TOOLCHAIN_PROBE, PACKAGE_DIR, subject.wheel.path),
        writes=(),
        deadline=time.time() + TIMEOUT_S,
    )
    try:
        return place.run(errand, ignore_progress)
    except RunAgainError:
        raise BuildError("does not end", name, f"it was ended after {TIMEOUT_S} s; its log is {log}") from None
