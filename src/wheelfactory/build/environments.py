"""Python environments for builds and imports, made by pip and cached by their content; wheels cached likewise."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from zipfile import is_zipfile

import requests

from wheelfactory.core.files import atomic_path, content_key, lock_folder, scratch_dir
from wheelfactory.core.http import http_session
from wheelfactory.core.process import DEFAULT_HINT, capture
from wheelfactory.core.progress import announced_progress, logger

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's index of CPU builds."""

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The version of the Python that runs the factory."""

# what pip prints with ``--progress-bar raw``: bytes of the file that it downloads
_PIP_PROGRESS = re.compile(rb"^Progress (\d{1,15}) of (\d{1,15})$", re.MULTILINE)
_MB = 10**6
_LARGE = 10 * _MB


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path
    version: str = PYTHON
    layers: tuple[Path, ...] = ()
    """The package folders that it imports from besides its own."""

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin/python"

    @property
    def site_packages(self) -> Path:
        """The folder of its packages."""
        return self.folder / f"lib/python{self.version}/site-packages"

    @property
    def reads(self) -> tuple[Path, ...]:
        """What a program in an environment of the factory's own Python reads."""
        return (Path(sys.base_prefix), self.folder, *self.layers)


@dataclass(frozen=True)
class Base:
    """A Python to layer environments on, and the package folders that they import from besides their own."""

    python: Path
    version: str
    layers: tuple[Path, ...]

    @classmethod
    def of(cls, first: Environment, *more: Environment) -> Base:
        """The Python of the first environment, with the packages of all."""
        return cls(first.python, first.version, tuple(each.site_packages for each in (first, *more)))


def find_base(python: Path, version: str, environ: Mapping[str, str]) -> Base:
    """Return a Python of this version with its own packages, as it finds them in a clean environment."""
    code = "import sys; print(*[path for path in sys.path if path.endswith('-packages')], sep='\\n')"
    found = capture([python, "-c", code], environ=clean_environ(environ))
    return Base(python, version, tuple(map(Path, found.splitlines())))


def build_requirements() -> tuple[str, ...]:
    """The pinned pip requirements for building a wheel without compiled code."""
    return _read_requirements("build-requirements.txt")


def numpy_requirements() -> tuple[str, ...]:
    """The pinned pip requirement of the emulator: numpy."""
    return _read_requirements("numpy-requirements.txt")


def _read_requirements(name: str) -> tuple[str, ...]:
    text = files("wheelfactory.build").joinpath(name).read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def build_tool_requirements() -> tuple[str, ...]:
    """The build requirements without torch."""
    # each cell has its own torch
    return tuple(line for line in build_requirements() if line != cpu_torch_requirement())


def cpu_torch_requirement() -> str:
    """The requirement on a CPU build of torch, for uses that only import torch."""
    return next(line for line in build_requirements() if line.startswith("torch=="))


def cpu_torch_version() -> str:
    """The release of the CPU build, such as ``2.13.0``."""
    return cpu_torch_requirement().removeprefix("torch==").removesuffix("+cpu")


@cache
def cpu_torch_options() -> tuple[str, ...]:
    """The pip options to find the CPU build: PyTorch's CPU index, or nothing if that cannot be reached."""
    # Without the index, pip uses its own configuration. It never falls back to CUDA: the requirement names `+cpu`.
    try:
        with http_session(os.environ, timeout=5, retries=0) as session:
            session.head(f"{CPU_INDEX}/torch/").raise_for_status()
    except requests.RequestException:
        return ()
    return ("--extra-index-url", CPU_INDEX)


def make_build_environment(cache_dir: Path) -> Environment:
    """Make or reuse the environment for building wheels without compiled code, with a CPU build of torch.

    Raises `BuildError` if there is no CPU build of torch for this Python.
    """
    remedy = f": allow access to {CPU_INDEX}, or run the factory with another Python"
    return _make_cached(cache_dir, build_requirements(), cpu_torch_options, remedy)


def make_triton_environment(cache_dir: Path, version: str) -> Environment:
    """Make or reuse an environment with one Triton version from PyPI, and nothing else."""
    # It replaces pytorch-triton-rocm or triton-rocm of the same version, a dependency of ROCm's torch.
    return _make_cached(cache_dir, (f"triton=={version}",))


def make_numpy_environment(cache_dir: Path) -> Environment:
    """Make or reuse an environment with `numpy_requirements` only."""
    return _make_cached(cache_dir, numpy_requirements())


def _make_cached(
    cache_dir: Path,
    requirements: Sequence[str],
    find_options: Callable[[], Sequence[str]] = lambda: ("--no-deps",),
    remedy: str = "",
) -> Environment:
    """Make or reuse an environment; `find_options` gives pip's options, and may ask an index, so only if it is made."""
    identity = "\n".join([sys.version, sys.base_prefix, *requirements])
    folder = cache_dir / f"env-{content_key(identity)}"
    # cells verified in parallel, and other runs on this machine, must not make the same environment twice; a lock
    # of its own, because a run that publishes into the cache folder holds that of the folder
    with nullcontext() if folder.is_dir() else lock_folder(cache_dir / "environments", wait=True):
        if not folder.is_dir():
            logger.info("installing %s", ", ".join(requirements))
            hint = f"{', '.join(requirements)} must be installable for Python {PYTHON}{remedy}"
            with scratch_dir(cache_dir) as scratch:
                made = make_empty_environment(scratch / "env")
                pip_install(made, *find_options(), *requirements, hint=hint)
                keep_environment(made, folder)
    return Environment(folder)


def keep_environment(made: Environment, folder: Path) -> None:
    """Move an environment to its cache folder, unless another run already did; both have the same content."""
    # pip's scripts contain the old path, so call its programs by `python -m` only
    try:
        made.folder.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def make_empty_environment(folder: Path) -> Environment:
    """Make an environment of the factory's own Python without packages, not even pip."""
    capture([sys.executable, "-m", "venv", "--symlinks", "--without-pip", folder])
    return Environment(folder)


def make_layered_environment(folder: Path, base: Path, version: str, layers: Sequence[Path]) -> Environment:
    """Create a venv from the Python `base`, of this version, that can also import from `layers`."""
    capture([base, "-m", "venv", "--symlinks", "--without-pip", folder])
    environment = Environment(folder, version, tuple(layers))
    # unlike a plain path line, addsitedir also reads the .pth files of a layer
    lines = [f"import site; site.addsitedir({str(layer)!r})\n" for layer in layers]
    (environment.site_packages / "layers.pth").write_text("".join(lines), encoding="utf-8")
    return environment


def make_python_environment(folder: Path, version: str, environ: Mapping[str, str]) -> Environment:
    """Make an environment of a Python version without packages; uv downloads that Python if it is missing.

    Raises `BuildError` if uv is missing or cannot provide the Python.
    """
    hint = f"install Python {version}, or allow uv to download it"
    capture(["uv", "venv", "--quiet", "--no-project", "--python", version, folder], environ=environ, hint=hint)
    return Environment(folder, version)


@contextmanager
def open_wheel_environment(cache_dir: Path, base: Base, *wheels: Path) -> Iterator[Environment]:
    """Open a temporary environment on `base` with these wheels installed, without their requirements.

    Raises `BuildError` if pip refuses a wheel.
    """
    with scratch_dir(cache_dir) as scratch:
        environment = make_layered_environment(scratch / "env", base.python, base.version, base.layers)
        # a program or two import a part of it, and no other run finds the bytecode
        pip_install(environment, "--no-deps", "--no-index", "--no-compile", *wheels)
        yield environment


def pip_install(environment: Environment, *arguments: str | Path, hint: str = DEFAULT_HINT) -> None:
    """Install into an environment by the factory's own pip, and show the progress of each large download.

    Raises `BuildError` with pip's last lines.
    """
    with announced_progress("download, MB") as report_progress:

        def look(output: bytes, _errors: bytes) -> None:
            counts = [(int(done), int(total)) for done, total in _PIP_PROGRESS.findall(output)]
            for done, total in [count for count in counts if count[1] >= _LARGE][-1:]:
                report_progress(done // _MB, total // _MB)

        # raw is the form for programs, since pip 24.1; a quiet pip shows no progress
        command = _pip(environment, "install", "--progress-bar", "raw", *arguments)
        capture(command, environ=_pip_environ(), hint=hint, look=look)


def content_folder(folder: Path, content: Iterable[str]) -> Path:
    """Return the folder below `folder` of a wheel that is made from `content`."""
    return folder / content_key("\n".join(content))


def cached_wheel(folder: Path, cache: Path, make: Callable[[Path], Path]) -> Path:
    """Return the wheel in `folder`; if there is none, `make` builds it in a scratch folder of the cache.

    A truncated wheel is built again: a crash of the machine can leave one.
    """
    for path in filter(is_zipfile, sorted(folder.glob("*.whl"))):
        return path
    with scratch_dir(cache) as scratch:
        return copy_wheel(make(scratch), folder)


def copy_wheel(wheel: Path, folder: Path) -> Path:
    """Copy a wheel into `folder`; return its path there."""
    path = folder / wheel.name
    with atomic_path(path) as written:
        shutil.copyfile(wheel, written)
    return path


def pip_wheel(environment: Environment, source: Path, folder: Path, epoch: int, environ: Mapping[str, str]) -> Path:
    """Build the wheel of `source` into `folder` with the packages of the environment only, offline.

    `epoch` becomes SOURCE_DATE_EPOCH, in seconds since 1970; `environ` adds variables for the build. Raises
    `BuildError` with pip's last lines.
    """
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder)
    own = {**_pip_environ(), **environ, "SOURCE_DATE_EPOCH": str(epoch)}
    capture(_pip(environment, "wheel", "--quiet", *options, source), environ=own)
    (wheel,) = folder.glob("*.whl")  # pip makes exactly one, or fails
    return wheel


def _pip(environment: Environment, command: str, *arguments: str | Path) -> list[str | Path]:
    options = ("--disable-pip-version-check", "--no-input")
    return [sys.executable, "-m", "pip", "--python", environment.python, command, *options, *arguments]


def _pip_environ() -> dict[str, str]:
    return {name: value for name, value in clean_environ(os.environ).items() if not name.startswith("PYTHON")}


# prefixes of variables that upstream's setup.py, torch's cpp_extension, a compiler, a compiler cache that the user has
# in front of one, or Python reads
_REMOVED_PREFIXES = (
    *("FLASH_ATT", "GPU_ARCHS", "OPT_DIM", "CK_TILE_", "MAX_JOBS", "PYTORCH_ROCM_ARCH", "BUILD_TRITON_BACKEND"),
    *("HIPCC_", "PYTORCH_NVCC", "NVCC_", "TORCH_NVCC_", "CCACHE_", "SCCACHE_", "WHEELFACTORY_"),
    # setup.py of aiter
    *("AITER_", "ENABLE_CK", "PREBUILD_", "PRETUNE_", "SETUPTOOLS_SCM_"),
    *("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "ARCHFLAGS"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE"),
)


def clean_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment without variables that influence builds."""
    return {name: value for name, value in environ.items() if not name.startswith(_REMOVED_PREFIXES)}
