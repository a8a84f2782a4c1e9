"""CK cell -> the Python that compiles its bindings: one on PATH whose torch fits, or one made with it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from wheelfactory.cell import Cell
from wheelfactory.checkout import PROBE
from wheelfactory.environments import Environment, build_requirements, pip_install
from wheelfactory.errors import BuildError
from wheelfactory.files import scratch_dir
from wheelfactory.matrix import Matrix
from wheelfactory.process import capture
from wheelfactory.wheel.record import Toolchain


def find_rocm_python(matrix: Matrix, cell: Cell, cache: Path, environ: Mapping[str, str]) -> Path:
    """A Python of the cell's version with the cell's torch for the cell's ROCm.

    Raises `BuildError` if there is no such Python, or its torch cannot be installed.
    """
    names = (f"python{cell.python}", "python3", "python")
    found = [Path(path) for name in names if (path := shutil.which(name, path=environ.get("PATH")))]
    for python in found:
        if fits(cell, probe(python, environ)):
            return python
    base = next((python for python in found if probe(python, environ).python == cell.python), None)
    if base is None:
        raise BuildError(
            f"cannot build {cell.id} here",
            f"there is no Python {cell.python} on PATH",
            f"install python{cell.python} with its headers (python{cell.python}-dev and -venv)",
        )
    return _with_torch(base, cell, matrix.rocm[cell.rocm].index, cache).python


def probe(python: Path, environ: Mapping[str, str]) -> Toolchain:
    """What torch and compiler a Python has."""
    return Toolchain.model_validate_json(capture([python, PROBE], environ=environ))


def fits(cell: Cell, toolchain: Toolchain) -> bool:
    """Whether a Python can compile for the cell: same Python, same torch, built for the cell's ROCm."""
    if toolchain.torch is None or toolchain.hip is None or toolchain.python != cell.python:
        return False
    hip, rocm = toolchain.hip.split(".")[:2], Version(cell.rocm)
    return Version(toolchain.torch).public == cell.torch and hip == [str(rocm.major), str(rocm.minor)]


def _with_torch(base: Path, cell: Cell, index: str, cache: Path) -> Environment:
    tools = [line for line in build_requirements() if not line.startswith("torch==")]
    identity = "\n".join([str(base.resolve()), cell.torch, index, *tools])
    environment = Environment(cache / f"rocm-{hashlib.sha256(identity.encode()).hexdigest()[:16]}", cell.python)
    if not environment.folder.is_dir():
        with scratch_dir(cache) as scratch:
            made = Environment(scratch / "env", cell.python)
            capture([base, "-m", "venv", "--without-pip", made.folder])
            pip_install(
                made,
                f"torch=={cell.torch}",
                "--index-url",
                index,
                hint=f"{index} must be reachable and have torch {cell.torch} for Python {cell.python}",
            )
            pip_install(made, *tools)
            made.folder.rename(environment.folder)
    return environment
