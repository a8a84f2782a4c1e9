"""Executors: they prepare the build host, this machine or a container, that runs setup.py of a cell.

On this machine, that is a Python with the torch of a CK cell, found or made; `container_executor` has the other.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ninja import BIN_DIR

from wheelfactory.build.environments import (
    Environment,
    build_tool_requirements,
    clean_environ,
    find_base,
    keep_environment,
    make_build_environment,
    make_layered_environment,
    pip_install,
)
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import TOOLCHAIN_PROBE, content_key, scratch_dir
from wheelfactory.core.host import Host
from wheelfactory.core.models import parse_model
from wheelfactory.core.process import Look, capture, ignore_output, run, run_logged
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.matrix.facts import Context
from wheelfactory.wheel.read import Toolchain


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
        shutil.rmtree(_environment(cell, self.context).folder, ignore_errors=True)

    def stop(self) -> None:
        """Nothing to do: programs here are children of the caller and end with it."""


def _run_here(command: BuildCommand, report_progress: ProgressCallback) -> str:
    return run_logged(
        command.argv, command.log, environ=command.environ, report_progress=report_progress, deadline=command.deadline
    )


def find_rocm_python(cell: Cell, context: Context) -> Path | None:
    """Find a Python with the cell's version and torch, on PATH or made by an earlier run; None if there is none."""
    made, environ = _environment(cell, context).python, context.environ
    candidates = [*_on_path(cell, environ), *([made] if made.exists() else [])]
    return next((python for python in candidates if _try_probe(python, environ).matches(cell)), None)


def prepare_rocm_python(cell: Cell, context: Context) -> Path:
    """Find or make a Python with the cell's torch, and add the pinned build tools.

    Raises `BuildError` if there is no Python of that version, or torch or the tools cannot be installed; AMD's own
    torch is in its images only.
    """
    found, environ = find_rocm_python(cell, context), context.environ
    if found:
        return _with_build_tools(found, cell, context).python
    if cell.amd_torch:
        which = f"no Python {cell.python} on PATH has AMD's torch {cell.torch}"
        hint = "start Docker or podman, or run the factory in the image of rocm/pytorch that has it"
        raise BuildError(f"cannot build {cell.id} here", which, hint)
    bases = [python for python in _on_path(cell, environ) if _try_probe(python, environ).python == cell.python]
    if not bases:
        hint = f"install python{cell.python} with its headers (python{cell.python}-dev and -venv)"
        raise BuildError(f"cannot build {cell.id} here", f"there is no Python {cell.python} on PATH", hint)
    return _install_torch(bases[0], cell, context).python


def probe_python(python: Path, environ: Mapping[str, str]) -> Toolchain:
    """Read the torch and compiler of a Python. Raises `BuildError` if it does not run."""
    return _probe_cached(python, frozenset(clean_environ(environ).items()))


@functools.cache
def _probe_cached(python: Path, environ: frozenset[tuple[str, str]]) -> Toolchain:
    # cached, because importing torch takes seconds and dozens of cells may share a Python
    refusal = BuildError("cannot examine this Python", str(python), "repair it, or remove it from PATH")
    return parse_model(Toolchain, capture([python, TOOLCHAIN_PROBE], environ=dict(environ)).encode(), refusal)


def _try_probe(python: Path, environ: Mapping[str, str]) -> Toolchain:
    """Like `probe_python`, but empty if it does not run, like pyenv's shims of versions that are not selected."""
    try:
        return probe_python(python, environ)
    except BuildError:
        return Toolchain()


def _on_path(cell: Cell, environ: Mapping[str, str]) -> list[Path]:
    names = (f"python{cell.python}", "python3", "python")
    found = [Path(path) for name in names if (path := shutil.which(name, path=environ.get("PATH")))]
    # one environment has its Python under several names, and two environments can link to the same one
    return list({(path.parent, path.resolve()): path for path in found}.values())


def _environment(cell: Cell, context: Context) -> Environment:
    index = context.matrix.rocm[cell.rocm].index
    identity = "\n".join([cell.python, torch_requirement(cell), index, *build_tool_requirements()])
    return Environment(context.cache / f"rocm-{content_key(identity)}", cell.python)


def torch_requirement(cell: Cell) -> str:
    """The requirement on torch with its ROCm local version, which PyPI's CUDA build cannot satisfy."""
    return f"torch=={cell.torch}+rocm{cell.rocm}"


def _with_build_tools(base: Path, cell: Cell, context: Context) -> Environment:
    """Make or reuse an environment on top of the user's Python."""
    # the user's own setuptools may write another METADATA than the pinned one
    identity = "\n".join([str(base), cell.python, *build_tool_requirements()])
    environment = Environment(context.cache / f"tools-{content_key(identity)}", cell.python)
    if not environment.folder.is_dir():
        logger.info("installing the build tools for %s", base)
        with scratch_dir(context.cache) as scratch:
            layers = find_base(base, cell.python, context.environ).layers
            made = make_layered_environment(scratch / "env", base, cell.python, layers)
            pip_install(made, *build_tool_requirements())
            keep_environment(made, environment.folder)
    return environment


def _install_torch(base: Path, cell: Cell, context: Context) -> Environment:
    environment, index = _environment(cell, context), context.matrix.rocm[cell.rocm].index
    logger.info("installing %s from %s", torch_requirement(cell), index)
    with scratch_dir(context.cache) as scratch:
        made = Environment(scratch / "env", cell.python)
        capture([base, "-m", "venv", "--without-pip", made.folder])
        hint = f"check that {index} is reachable and has torch {cell.torch} for Python {cell.python}"
        pip_install(made, torch_requirement(cell), "--index-url", index, hint=hint)
        pip_install(made, *build_tool_requirements())
        found = probe_python(made.python, context.environ)
        if not found.matches(cell):
            which = f"{index} has {found.torch}, built for HIP {found.hip}"
            raise BuildError(f"unexpected torch for {cell.id}", which, hint)
        keep_environment(made, environment.folder)
    return environment
