"""Where setup.py runs: on this machine or in a container. What is there, and how to run it there, is one value."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ninja import BIN_DIR

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.build.environments import make_build_environment
from wheelfactory.build.rocm_python import find_rocm_python, prepare_rocm_python
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.host import Host
from wheelfactory.core.process import run_logged
from wheelfactory.core.progress import ProgressPart, logger
from wheelfactory.matrix.facts import Matrix


@dataclass(frozen=True)
class BuildCommand:
    """One program to run, with what it is handed. Paths of files are the same wherever it runs."""

    name: str
    """Of the cell, or of what else is made."""
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log: Path
    reads: tuple[Path, ...]
    """What it must find there and must not change."""
    writes: tuple[Path, ...]
    """Where it leaves things."""
    deadline: float | None = None
    """Seconds since 1970 at which it is ended."""


@dataclass(frozen=True)
class BuildHost:
    """Where setup.py of a cell runs. Paths are those of the place."""

    machine: Host
    """What a build may use there; its ROCm is that of the place."""
    python: Path
    ninja: Path
    ccache: str
    """The compiler cache; empty if there is none."""
    environ: Mapping[str, str]
    """What every program there is given, PATH included."""
    run: Callable[[BuildCommand, ProgressPart], str]
    """Runs a program and gives what it prints. Raises `BuildError` with the last lines and the place of the log,
    `RunAgainError` at the deadline."""


class Executor(Protocol):
    """Gives each cell its place; where nothing else is said, on this machine and one cell at a time."""

    @property
    def parallel_cells(self) -> int:
        """How many cells it may build at the same time."""
        return 1

    def describe_host(self, cell: Cell) -> Host:
        """What a build of the cell may use, as far as it is known before anything is downloaded."""

    def choose_cheapest(self, cells: Sequence[Cell]) -> Cell:
        """The cell among these whose place takes least to make."""

    def prepare_host(self, cell: Cell, part: ProgressPart) -> BuildHost:
        """The place of a cell, made if need be. Raises `BuildError` if it cannot be had."""

    def find_gate_host(self, _cell: Cell) -> BuildHost | None:
        """The place of a cell if it is not this machine."""
        return None

    def split(self, _count: int) -> Executor:
        """One whose places have an equal part each of what this one has; itself if it builds one cell at a time."""
        return self

    def stop(self) -> None:
        """End what runs in its places; those who wait for it are told with a `BuildError`."""


@dataclass(frozen=True)
class LocalExecutor(Executor):
    """This machine, with its own ROCm and Pythons; one cell at a time, as each uses all of it."""

    matrix: Matrix
    machine: Host
    environ: Mapping[str, str]
    cache: Path

    def describe_host(self, _cell: Cell) -> Host:
        """The machine itself."""
        return self.machine

    def choose_cheapest(self, cells: Sequence[Cell]) -> Cell:
        """One whose torch is at hand, else the first."""

        def at_hand(cell: Cell) -> Path | None:
            index = self.matrix.rocm[cell.rocm].index
            return find_rocm_python(cell, index=index, cache=self.cache, environ=self.environ)

        return next(filter(at_hand, cells), cells[0])

    def prepare_host(self, cell: Cell, _part: ProgressPart) -> BuildHost:
        """This machine with a Python for the cell: any for Triton, one with the cell's torch for CK."""
        path = self.environ.get("PATH", "")
        if cell.backend is Backend.TRITON:
            python, ccache = make_build_environment(self.cache).python, None
        else:
            index = self.matrix.rocm[cell.rocm].index
            python = prepare_rocm_python(cell, index=index, cache=self.cache, environ=self.environ)
            ccache = shutil.which("ccache", path=path)
            if not ccache:
                logger.info("no ccache on PATH: objects are shared within a kernel set only (apt-get install ccache)")
        return BuildHost(
            machine=self.machine,
            python=python,
            ninja=Path(BIN_DIR) / "ninja",
            ccache=ccache or "",
            environ={**clean_environ(self.environ), "PATH": f"{python.parent}:{path}"},  # ninja is beside the Python
            run=_run_here,
        )

    def stop(self) -> None:
        """Nothing: what runs here ends with who waits for it."""


def _run_here(errand: BuildCommand, part: ProgressPart) -> str:
    return run_logged(errand.argv, errand.log, environ=errand.environ, part=part, deadline=errand.deadline)


@dataclass(frozen=True)
class PerBackendExecutor:
    """CK cells in containers, Triton cells on this machine: those hold no compiled code and build anywhere."""

    ck: Executor
    triton: Executor

    @property
    def parallel_cells(self) -> int:
        """As many as containers; a Triton wheel is made once and quickly."""
        return self.ck.parallel_cells

    def describe_host(self, cell: Cell) -> Host:
        """That of the backend's executor."""
        return self._of(cell).describe_host(cell)

    def choose_cheapest(self, cells: Sequence[Cell]) -> Cell:
        """The choice of the first cell's executor; kernel sets are of one backend."""
        return self._of(cells[0]).choose_cheapest(cells)

    def prepare_host(self, cell: Cell, part: ProgressPart) -> BuildHost:
        """That of the backend's executor."""
        return self._of(cell).prepare_host(cell, part)

    def find_gate_host(self, cell: Cell) -> BuildHost | None:
        """That of the backend's executor."""
        return self._of(cell).find_gate_host(cell)

    def split(self, count: int) -> PerBackendExecutor:
        """Both divided."""
        return PerBackendExecutor(self.ck.split(count), self.triton.split(count))

    def stop(self) -> None:
        """Both stopped."""
        self.ck.stop()
        self.triton.stop()

    def _of(self, cell: Cell) -> Executor:
        return self.triton if cell.backend is Backend.TRITON else self.ck
