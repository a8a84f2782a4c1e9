"""Executors: they prepare the build host, this machine or a container, that runs setup.py of a cell."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ninja import BIN_DIR

from wheelfactory.build.environments import clean_environ, make_build_environment
from wheelfactory.build.rocm_python import discard_rocm_python, find_rocm_python, prepare_rocm_python
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.host import Host
from wheelfactory.core.process import Look, ignore_output, run, run_logged
from wheelfactory.core.progress import ProgressCallback
from wheelfactory.matrix.facts import Context


@dataclass(frozen=True)
class BuildCommand:
    """One program to run on a build host. Paths are the same on every build host."""

    name: str
    """The cell id or kernel set id that it builds."""
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path
    reads: tuple[Path, ...]
    """Files and folders that it reads; mounted read-only in a container."""
    writes: tuple[Path, ...]
    """Files and folders that it writes."""
    deadline: float | None = None
    """Seconds since 1970 at which it is killed."""


@dataclass(frozen=True)
class BuildHost:
    """Where setup.py of a cell runs. Paths are those on the build host."""

    machine: Host
    """Resources of a build there, and its ROCm."""
    python: Path
    ninja: Path
    environ: Mapping[str, str]
    """The base environment of every program there, including PATH."""
    run: Callable[[BuildCommand, ProgressCallback], str]
    """Runs a program and returns its stdout. Raises `BuildError` with its last lines and the path of the log,
    `RunAgainError` at the deadline."""


@dataclass(frozen=True)
class WheelProgram:
    """A program that runs code of a wheel, which nobody trusts."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    """All its variables."""
    reads: tuple[Path, ...]
    """Files and folders that it reads besides those of the system."""
    scratch: Path
    """Its working folder, an existing one, and the only one that it may write; nothing of it is read afterwards."""
    timeout: float
    """Seconds until it is killed."""
    look: Look = ignore_output


class GateRunner(Protocol):
    """Runs the programs of gates. The defaults are for this machine, where code of a wheel has the caller's rights."""

    def find_gate_host(self, _cell: Cell) -> BuildHost | None:
        """The build host whose torch the gates of a CK cell must use; None for one of this machine."""
        return None

    def run_wheel(self, program: WheelProgram) -> subprocess.CompletedProcess[str]:
        """Run a program. Raises `BuildError` if it cannot be started, `subprocess.TimeoutExpired` at its timeout."""
        return run(
            program.argv, environ=program.environ, cwd=program.scratch, timeout=program.timeout, look=program.look
        )


class _Here(GateRunner):
    pass


HERE: GateRunner = _Here()
"""Runs them on this machine."""


class Executor(GateRunner, Protocol):
    """Prepares build hosts for cells. The defaults are for this machine, one cell at a time."""

    @property
    def parallel_cells(self) -> int:
        """Maximum number of cells to build at the same time."""
        return 1

    def describe_host(self, cell: Cell) -> Host:
        """Describe the resources of a build of the cell, without downloading anything."""

    def choose_cheapest(self, cells: Sequence[Cell]) -> Cell:
        """Choose the cell whose build host is the fastest to prepare."""

    def prepare_host(self, cell: Cell, report_progress: ProgressCallback) -> BuildHost:
        """Prepare the build host of a cell. Raises `BuildError` if that fails."""

    def discard_host(self, _cell: Cell) -> None:
        """Remove what only the build host of this cell needs from the disk, but not its base image."""

    def split(self, _count: int) -> Executor:
        """An executor with an equal share of the resources for each of `count` parallel cells."""
        return self

    def stop(self) -> None:
        """Kill everything that runs on its build hosts; the waiting callers get a `BuildError`."""


@dataclass(frozen=True)
class LocalExecutor(Executor):
    """Builds on this machine with its own ROCm and Pythons; one cell at a time, because each uses all cores."""

    context: Context

    def describe_host(self, _cell: Cell) -> Host:
        """This machine."""
        return self.context.host

    def choose_cheapest(self, cells: Sequence[Cell]) -> Cell:
        """The first cell whose torch is already installed, else the first."""
        return next((cell for cell in cells if find_rocm_python(cell, self.context)), cells[0])

    def prepare_host(self, cell: Cell, _report_progress: ProgressCallback) -> BuildHost:
        """This machine with a Python for the cell: for CK one with the cell's torch, for Triton any."""
        environ = self.context.environ
        if cell.backend is Backend.TRITON:
            python = make_build_environment(self.context.cache).python
        else:
            python = prepare_rocm_python(cell, self.context)
        return BuildHost(
            machine=self.context.host,
            python=python,
            ninja=Path(BIN_DIR) / "ninja",
            # ninja is beside the Python
            environ={**clean_environ(environ), "PATH": f"{python.parent}:{environ.get('PATH', '')}"},
            run=_run_here,
        )

    def discard_host(self, cell: Cell) -> None:
        """Remove the environment with the cell's torch, unless it is the user's own."""
        discard_rocm_python(cell, self.context)

    def stop(self) -> None:
        """Nothing to do: programs here are children of the caller and end with it."""


def _run_here(command: BuildCommand, report_progress: ProgressCallback) -> str:
    return run_logged(
        command.argv, command.log, environ=command.environ, report_progress=report_progress, deadline=command.deadline
    )
