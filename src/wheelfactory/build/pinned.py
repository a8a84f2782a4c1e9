"""Build a wheel without compiled code from pinned sources: finished, or plain to compare with.

Plain wheels are what setuptools makes of the sources, with no backend and no label: a second, independent build without
build_rocm.sh, container and rewriting (see `verify.contents`). They are cached by everything that they are made from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.build.environments import (
    build_requirements,
    cached_wheel,
    content_folder,
    copy_wheel,
    make_build_environment,
    pip_wheel,
)
from wheelfactory.build.sources import Source, fetch_source, unpack_source
from wheelfactory.core.cell import FLASH_ATTN_NAME
from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import logger
from wheelfactory.matrix.facts import Context
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.rewrite import rewrite_wheel


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
