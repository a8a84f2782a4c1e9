"""Find or make the Python that compiles a CK cell's bindings: it must have the cell's torch."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping
from pathlib import Path

from wheelfactory.build.environments import (
    Environment,
    build_tool_requirements,
    clean_environ,
    find_base,
    keep_environment,
    make_layered_environment,
    pip_install,
)
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError
from wheelfactory.core.files import TOOLCHAIN_PROBE, content_key, scratch_dir
from wheelfactory.core.models import parse_model
from wheelfactory.core.process import capture
from wheelfactory.core.progress import logger
from wheelfactory.matrix.facts import Context
from wheelfactory.wheel.build_record import Toolchain


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


def discard_rocm_python(cell: Cell, context: Context) -> None:
    """Remove the environment that `prepare_rocm_python` installed torch into, if it did."""
    shutil.rmtree(_environment(cell, context).folder, ignore_errors=True)


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
