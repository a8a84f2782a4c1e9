"""Python environments to build and to import in: made once per content, kept in the cache, filled by pip."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import requests

from wheelfactory.build.clean_environ import clean_environ
from wheelfactory.core.digest import content_key
from wheelfactory.core.files import scratch_dir
from wheelfactory.core.http import http_session
from wheelfactory.core.process import DEFAULT_HINT, capture
from wheelfactory.core.progress import logger

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's index of CPU builds."""

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The version of the Python that runs the factory."""

_MAKING = threading.Lock()
"""Held while an environment is made, so that cells which are verified beside each other do not make it twice."""


@dataclass(frozen=True)
class Environment:
    """A Python with packages, at `folder`."""

    folder: Path
    version: str = PYTHON

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin/python"

    @property
    def site_packages(self) -> Path:
        """Where its packages are."""
        return self.folder / f"lib/python{self.version}/site-packages"


def build_requirements() -> tuple[str, ...]:
    """What the build of a wheel without compiled code needs, pinned, as pip requirements."""
    return _requirements("build-requirements.txt")


def interpreter_requirements() -> tuple[str, ...]:
    """What Triton's interpreter needs beside Triton and torch, pinned, as pip requirements."""
    return _requirements("interpreter-requirements.txt")


def _requirements(name: str) -> tuple[str, ...]:
    text = files("wheelfactory.build").joinpath(name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def build_tool_requirements() -> tuple[str, ...]:
    """The build requirements without torch: a cell brings its own."""
    return tuple(line for line in build_requirements() if line != cpu_torch_requirement())


def cpu_torch_requirement() -> str:
    """The requirement on the CPU build of torch that stands in where only the import of torch matters."""
    return next(line for line in build_requirements() if line.startswith("torch=="))


def cpu_torch_version() -> str:
    """The release of that CPU build, such as ``2.13.0``."""
    return cpu_torch_requirement().removeprefix("torch==").removesuffix("+cpu")


@cache
def cpu_torch_options() -> tuple[str, ...]:
    """What pip needs to find the CPU build: PyTorch's CPU index, or nothing where that cannot be reached.

    Without it pip finds the build only where its own configuration offers one; it never falls back to CUDA,
    because the requirement names the CPU build.
    """
    try:
        with http_session(os.environ, timeout=5, retries=0) as session:
            session.head(f"{CPU_INDEX}/torch/").raise_for_status()
    except requests.RequestException:
        return ()
    return ("--extra-index-url", CPU_INDEX)


def make_build_environment(cache_dir: Path) -> Environment:
    """The environment that builds wheels without compiled code, with a CPU build of torch.

    Raises `BuildError` if no CPU build of torch can be had for this Python.
    """
    return _kept(
        cache_dir,
        build_requirements(),
        cpu_torch_options(),
        f"{cpu_torch_requirement()} must be installable for Python {PYTHON}: "
        f"let {CPU_INDEX} be reached, or run with another Python",
    )


def make_triton_environment(cache_dir: Path, version: str) -> Environment:
    """An environment that holds one Triton version from PyPI, and nothing else.

    It stands in for pytorch-triton-rocm or triton-rocm of the same version, which ROCm's torch brings.
    """
    return _kept(
        cache_dir,
        (f"triton=={version}",),
        ("--no-deps",),
        f"Triton {version} must be installable for Python {PYTHON}",
    )


def make_interpreter_environment(cache_dir: Path) -> Environment:
    """An environment that holds what Triton's interpreter needs beside Triton and torch, and nothing else."""
    hint = f"numpy must be installable for Python {PYTHON}"
    return _kept(cache_dir, interpreter_requirements(), ("--no-deps",), hint)


def _kept(cache_dir: Path, requirements: Sequence[str], options: Sequence[str], hint: str) -> Environment:
    identity = "\n".join([sys.version, sys.base_prefix, *requirements])
    folder = cache_dir / f"env-{content_key(identity)}"
    with _MAKING:
        if not folder.is_dir():
            logger.info("installing %s", ", ".join(requirements))
            with scratch_dir(cache_dir) as scratch:
                made = make_empty_environment(scratch / "env")
                pip_install(made, *options, *requirements, hint=hint)
                keep_environment(made, folder)
    return Environment(folder)


def keep_environment(made: Environment, folder: Path) -> None:
    """Move an environment to where it is kept, unless another run was faster; both hold the same.

    pip's scripts name the old place, so only `python -m` is used of it.
    """
    try:
        made.folder.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def make_empty_environment(folder: Path) -> Environment:
    """A new environment without any package (not even pip), of the Python that runs the factory."""
    capture([sys.executable, "-m", "venv", "--symlinks", "--without-pip", folder])
    return Environment(folder)


def make_layered_environment(folder: Path, base: Path, version: str, layers: Sequence[Path]) -> Environment:
    """A new environment of the Python `base` (of that version) that sees the packages in the folders `layers`."""
    capture([base, "-m", "venv", "--symlinks", "--without-pip", folder])
    environment = Environment(folder, version)
    # addsitedir reads the .pth files of a layer too, which a plain path line would not
    lines = [f"import site; site.addsitedir({str(layer)!r})\n" for layer in layers]
    (environment.site_packages / "layers.pth").write_text("".join(lines), encoding="utf-8")
    return environment


@contextmanager
def open_wheel_environment(
    cache_dir: Path, wheel: Path, base: Path, version: str, layers: Sequence[Path]
) -> Iterator[Environment]:
    """A layered environment with a wheel installed into it by pip, without what it requires; gone afterwards.

    Raises `BuildError` if pip does not install the wheel.
    """
    with scratch_dir(cache_dir) as scratch:
        environment = make_layered_environment(scratch / "env", base, version, layers)
        pip_install(environment, "--no-deps", "--no-index", wheel)
        yield environment


def find_package_folders(python: Path, environ: Mapping[str, str]) -> list[Path]:
    """Where the packages of a Python are, as layers for another environment."""
    code = "import sys; print(*[path for path in sys.path if path.endswith('-packages')], sep='\\n')"
    return [Path(line) for line in capture([python, "-c", code], environ=environ).splitlines()]


def pip_install(environment: Environment, *arguments: str | Path, hint: str = DEFAULT_HINT) -> None:
    """Install into an environment with the factory's own pip. Raises `BuildError` with pip's last lines."""
    _pip(environment, "install", arguments, hint=hint)


def pip_wheel(environment: Environment, source: Path, folder: Path, epoch: int, environ: Mapping[str, str]) -> Path:
    """Build the wheel of the sources in `source` into `folder`, with what the environment has and nothing else.

    `epoch` is the time of what it makes, in seconds since 1970; `environ` is for the build alone. Raises `BuildError`
    with pip's last lines.
    """
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder)
    _pip(environment, "wheel", (*options, source), environ={**environ, "SOURCE_DATE_EPOCH": str(epoch)})
    (wheel,) = folder.glob("*.whl")  # pip makes one of one project, or fails
    return wheel


def _pip(
    environment: Environment,
    command: str,
    arguments: Sequence[str | Path],
    hint: str = DEFAULT_HINT,
    environ: Mapping[str, str] | None = None,
) -> None:
    kept = {name: value for name, value in clean_environ(os.environ).items() if not name.startswith("PYTHON")}
    pip = (sys.executable, "-m", "pip", "--python", environment.python)
    options = ("--quiet", "--disable-pip-version-check", "--no-input")
    capture([*pip, command, *options, *arguments], environ={**kept, **(environ or {})}, hint=hint)
