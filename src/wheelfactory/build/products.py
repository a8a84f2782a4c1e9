"""Build wheels without compiled code from pinned sources: products, and plain ones of flash-attn to compare with.

Plain wheels are what setuptools makes of the sources, with no backend and no label: a second, independent build without
build_rocm.sh, container and rewriting (see `verify.contents`). All are cached by everything that they are made from,
and have the same bytes wherever and whenever they are built.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import Field

from wheelfactory.build.environments import (
    build_requirements,
    cached_wheel,
    content_folder,
    copy_wheel,
    make_build_environment,
    pip_wheel,
)
from wheelfactory.build.sources import Source, fetch_git, fetch_source, unpack_source
from wheelfactory.core.cell import AITER_NAME, FALLBACK_NAME, FLASH_ATTN_FALLBACK, FLASH_ATTN_NAME, product_name
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.files import FALLBACK_SOURCES, FLASH_ATTN_FALLBACK_SOURCES, files_sha256, read_file
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.progress import logger
from wheelfactory.matrix.facts import Context
from wheelfactory.wheel.corrections import corrections_id
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.rewrite import finish_pure_wheel, rewrite_wheel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class PinnedProject:
    """A version of a project, its pinned sources, and how its wheel is built from them."""

    name: str
    version: str
    identity: str
    """What pins the sources: ``sha256:...`` or ``commit:...``."""
    run_setup: Callable[[Path], Path]
    """Fetches the sources, runs setup.py in a scratch folder and returns the raw wheel. Raises `SourceError` or
    `BuildError`."""
    wheel: str = ""
    """The file name of the finished wheel; empty for flash-attn, which has one for each cell."""
    pinned_in: str = ""
    """Where a maintainer changes `wheel`, for errors."""
    finish: Callable[[Path, Path], Path] = rewrite_wheel
    """Writes the finished wheel of a raw wheel into a folder and returns its path."""
    finished_by: tuple[str, ...] = ()
    """What else determines the bytes of the finished wheel."""


def make_wheel(project: PinnedProject, cache: Path) -> Path:
    """Return the path of the finished wheel in the cache; build it if it is not there.

    Raises the errors of `run_setup`, and `BuildError` if the build makes another wheel.
    """

    def make(scratch: Path) -> Path:
        logger.info("building %s", project.name)
        made = project.finish(project.run_setup(scratch), scratch)
        if made.name != project.wheel:
            hint = f"expected {project.wheel}: check {project.pinned_in}"
            raise BuildError("the build made an unexpected wheel", made.name, hint)
        return made

    content = (project.identity, project.wheel, *project.finished_by, *build_requirements())
    return cached_wheel(content_folder(cache / "raw", content), cache, make)


def build_wheel(project: PinnedProject, folder: Path, cache: Path) -> Path:
    """Build the finished wheel into `folder`, or copy it from the cache. Raises the errors of `make_wheel`."""
    return copy_wheel(make_wheel(project, cache), folder)


# variables that setup.py of every release reads: for ROCm, compile nothing, and download no wheel instead. Observed for
# 2.7.4.post1, 2.8.3 and 2.8.3.post2: the members equal the Triton backend's, byte for byte
_NO_BACKEND = {"BUILD_TARGET": "rocm", "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE", "FLASH_ATTENTION_FORCE_BUILD": "TRUE"}


def make_plain_wheel(project: PinnedProject, cache: Path, *, may_build: bool = True) -> Wheel:
    """Return the plain wheel of a project, as its setup.py writes it, from the cache; build it if it is not there.

    Raises `SourceError` if its sources cannot be fetched, `BuildError` if it cannot be built, or not `may_build`:
    building runs setup.py.
    """
    what = f"{project.name} {project.version}"

    def make(scratch: Path) -> Path:
        if not may_build:
            hint = "this command must not run setup.py: run `wheelfactory verify` on the same wheels first"
            raise BuildError("missing plain wheel to compare with", what, hint)
        logger.info("building the plain wheel of %s, to compare with", what)
        return project.run_setup(scratch)

    return Wheel.open(cached_wheel(plain_folder(project.name, project.version, project.identity, cache), cache, make))


def plain_folder(name: str, version: str, identity: str, cache: Path) -> Path:
    """Return the folder of a project's plain wheel in the cache."""
    content = (f"{name} {version}", identity, *build_requirements(), str(sorted(_NO_BACKEND.items())))
    return content_folder(cache / "plain", content)


def pin_release(version: str, context: Context) -> PinnedProject:
    """Return the sources of a flash-attn release, and their build without a backend.

    Raises `SourceError` if matrix.yaml pins only a tag, and its sources cannot be fetched.
    """
    release, cache = context.matrix.flash_attn[version], context.cache

    def fetch() -> Source:
        return fetch_source(version, release, cache / "sources", context.environ)

    def run_setup(scratch: Path) -> Path:
        source = fetch()
        tree = unpack_source(source, scratch / "source")
        return pip_wheel(make_build_environment(cache), tree, scratch / "raw", source.epoch, _NO_BACKEND)

    # a tag without a pinned commit can move, so only the fetched sources identify it
    identity = fetch().identity if release.source_pin.startswith("tag:") else release.source_pin
    return PinnedProject(FLASH_ATTN_NAME, version, identity, run_setup)


PACKAGE = "flash_attention_amd"
"""The package in its wheel, and the distribution name as the wheel spells it."""

LICENSE = "LICENSE"
# files that the build reads beside the package
_BUILD_FILES = ("pyproject.toml", "README.md", LICENSE)


class FallbackProject(FrozenModel, extra="ignore"):
    """The distribution, as its sources define it; the first fields are keys of ``[project]`` in pyproject.toml."""

    name: str
    version: str
    requires_python: str = Field(alias="requires-python")
    requires: tuple[str, ...] = Field(alias="dependencies")
    build_files: Mapping[str, bytes]
    """Content by name, beside the package."""
    members: Mapping[str, bytes]
    """Content of the package's files, by their names in the wheel."""

    @property
    def filename(self) -> str:
        """The file name of its wheel."""
        # no label: the wheel is the same for every ROCm and torch
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def identity(self) -> str:
        """``sha256:...`` over names and contents of all files that the wheel is made from."""
        return f"sha256:{files_sha256(sorted({**self.build_files, **self.members}.items()))}"

    def write_sources(self, folder: Path) -> None:
        """Write the sources into `folder`, without the build folders that a checkout may contain."""
        for name, data in {**self.build_files, **{f"src/{name}": data for name, data in self.members.items()}}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def read_fallback_project(name: str = FALLBACK_NAME) -> FallbackProject:
    """Read the project of a product, `FALLBACK_NAME` or `FLASH_ATTN_FALLBACK`, in this checkout or installed package.

    Raises `InputError` if a file is missing, or pyproject.toml lacks a key.
    """
    sources = FALLBACK_SOURCES if name == FALLBACK_NAME else FLASH_ATTN_FALLBACK_SOURCES
    path, package = sources / "pyproject.toml", sources / "src"
    refusal = InputError(
        f"cannot read {name}", str(path), "it needs name, version, requires-python and dependencies in [project]"
    )
    try:
        table = tomllib.loads(_read(path, name).decode()).get("project", {})
    except ValueError as error:
        raise InputError(refusal.what, f"{path}: {error}", refusal.hint) from None
    files = [path for pattern in ("*.py", "py.typed") for path in package.rglob(pattern)]  # setuptools takes only these
    contents = {
        "build_files": {file: _read(sources / file, name) for file in _BUILD_FILES},
        "members": {path.relative_to(package).as_posix(): _read(path, name) for path in files},
    }
    found = parse_model(FallbackProject, {**table, **contents}, refusal)
    if product_name(found.name, found.version) != name:
        raise InputError(refusal.what, f"{path}: name and version of another project", refusal.hint)
    return found


def _read(path: Path, name: str) -> bytes:
    hint = "install the factory again, or restore the file from git"
    return read_file(path, InputError(f"cannot read {name}", str(path), hint))


# 1980-01-01, the earliest time of a zip member. Files of a checkout have only the time of the checkout
_ZIP_EPOCH = 315532800


def pin_fallback(name: str, context: Context) -> PinnedProject:
    """Return the version of this checkout and its build. Raises the errors of `read_fallback_project`."""
    project, cache = read_fallback_project(name), context.cache

    def run_setup(scratch: Path) -> Path:
        environment = make_build_environment(cache)
        project.write_sources(scratch / "source")
        return pip_wheel(environment, scratch / "source", scratch / "raw", _ZIP_EPOCH, {})

    return PinnedProject(
        name, project.version, project.identity, run_setup, wheel=project.filename, pinned_in="its pyproject.toml"
    )


# variables that aiter's setup.py reads, observed for commit 9bab8388: no ROCm modules, and no pip install of a Triton
_VARIABLES = {"AITER_TRITON_ONLY": "1", "AITER_USE_SYSTEM_TRITON": "1"}

UNUSED_REQUIREMENTS = frozenset({"psutil", "packaging"})
"""Requirements of aiter that flash-attn's kernels never import; no index of ours has them."""


def pin_aiter(context: Context) -> PinnedProject:
    """Return the commit in matrix.yaml and its build. Raises `InputError` if matrix.yaml builds no aiter."""
    dependency, cache, environ = context.matrix.dependencies.get(AITER_NAME), context.cache, context.environ
    if dependency is None or dependency.git is None:
        hint = f"add {AITER_NAME} with git to its dependencies"
        raise InputError("matrix.yaml builds no aiter", AITER_NAME, hint)
    git, version = dependency.git, dependency.version

    def run_setup(scratch: Path) -> Path:
        source = fetch_git(f"aiter-{version}", git, cache / "sources", environ)
        tree = unpack_source(source, scratch / "source")
        # setup.py calls a script in it that installs a Triton by pip, and goes on where there is no such script
        shutil.rmtree(tree / ".github", ignore_errors=True)
        return pip_wheel(make_build_environment(cache), tree, scratch / "raw", source.epoch, _VARIABLES)

    def finish(raw: Path, folder: Path) -> Path:
        return finish_pure_wheel(raw, version, UNUSED_REQUIREMENTS, folder)

    return PinnedProject(
        AITER_NAME,
        version,
        f"commit:{git.commit}",
        run_setup,
        wheel=dependency.wheel,
        pinned_in="the commit in matrix.yaml",
        finish=finish,
        finished_by=(corrections_id(), str(sorted(UNUSED_REQUIREMENTS)), str(sorted(_VARIABLES.items()))),
    )


_PINS: Mapping[str, Callable[[Context], PinnedProject]] = {
    FALLBACK_NAME: partial(pin_fallback, FALLBACK_NAME),
    FLASH_ATTN_FALLBACK: partial(pin_fallback, FLASH_ATTN_FALLBACK),
    AITER_NAME: pin_aiter,
}


def pin_product(name: str, context: Context) -> PinnedProject:
    """Return the version, sources and build of a product in this checkout.

    Raises `InputError` if its sources are missing or not pinned.
    """
    return _PINS[name](context)


def make_products(names: Iterable[str], context: Context) -> tuple[Path, ...]:
    """Return the paths of the wheels of products in the cache. Raises the errors of `pin_product` and `make_wheel`."""
    return tuple(make_wheel(pin_product(name, context), context.cache) for name in names)


def is_other_version(product: str, version: str, context: Context) -> bool:
    """Whether this is a product in another version than this checkout's, which therefore cannot verify it."""
    return product in _PINS and version != pin_product(product, context).version
