"""Plain wheels: what setuptools makes of pinned sources, with no backend and no label, to compare wheels with.

This is a second, independent build: no build_rocm.sh, no container, no rewriting (see `verify.expected`). It takes some
seconds and is cached by everything that it is made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.build.aiter import fetch_aiter, run_aiter_setup
from wheelfactory.build.environments import (
    build_requirements,
    cached_wheel,
    content_folder,
    make_build_environment,
    pip_wheel,
)
from wheelfactory.build.fallback import ZIP_EPOCH, FallbackProject
from wheelfactory.build.sources import Source, fetch_source, unpack_source
from wheelfactory.core.cell import AITER_NAME, FALLBACK_NAME
from wheelfactory.core.digest import file_sha256
from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import logger
from wheelfactory.matrix.facts import FlashAttn
from wheelfactory.matrix.origins import Dependency
from wheelfactory.wheel.read import Wheel

# variables that setup.py of every release reads: for ROCm, compile nothing, and download no wheel instead. Observed for
# 2.7.4.post1, 2.8.3 and 2.8.3.post2: the members equal those of the Triton backend, byte for byte
_NO_BACKEND = {
    "BUILD_TARGET": "rocm",
    "FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE",
    "FLASH_ATTENTION_FORCE_BUILD": "TRUE",
}


@dataclass(frozen=True)
class PlainBuilds:
    """Builds plain wheels, and caches them."""

    cache: Path
    environ: Mapping[str, str]
    may_build: bool = True
    """Whether a missing wheel may be built here, which runs setup.py; if not, it is an error."""

    @property
    def folder(self) -> Path:
        """The cache folder: one subfolder per content, with one wheel."""
        return self.cache / "plain"

    def read_digests(self) -> dict[str, str]:
        """The sha256 of every cached file, by its path below `folder`."""
        files = (path for path in self.folder.rglob("*") if not path.is_dir())
        return {path.relative_to(self.folder).as_posix(): file_sha256(path) for path in files}

    def make_flash_attn_wheel(self, version: str, release: FlashAttn) -> Wheel:
        """Make or reuse the plain wheel of a release.

        Raises `SourceError` if its sources cannot be fetched, `BuildError` if it is missing and must not or cannot be
        built.
        """

        def fetch() -> Source:
            return fetch_source(version, release, self.cache / "sources", self.environ)

        def make(folder: Path) -> Path:
            source = fetch()
            tree = unpack_source(source, folder / "source")
            return pip_wheel(make_build_environment(self.cache), tree, folder, source.epoch, _NO_BACKEND)

        # a tag without a pinned commit can move, so only the fetched sources identify it
        identity = fetch().identity if release.source_pin.startswith("tag:") else release.source_pin
        return self._make_cached(f"flash-attn {version}", identity, make)

    def make_fallback_wheel(self, project: FallbackProject) -> Wheel:
        """Make or reuse the plain wheel of flash-attention-amd. Raises `BuildError` if it cannot be built."""

        def make(folder: Path) -> Path:
            project.write_sources(folder / "source")
            return pip_wheel(make_build_environment(self.cache), folder / "source", folder, ZIP_EPOCH, {})

        return self._make_cached(f"{FALLBACK_NAME} {project.version}", project.identity, make)

    def make_aiter_wheel(self, dependency: Dependency) -> Wheel:
        """Make or reuse the plain wheel of aiter, as its setup.py writes it.

        Raises `SourceError` if its sources cannot be fetched, `BuildError` if it is missing and must not or cannot be
        built.
        """

        def make(folder: Path) -> Path:
            return run_aiter_setup(fetch_aiter(dependency, self.cache, self.environ), folder, self.cache)

        assert dependency.git
        return self._make_cached(f"{AITER_NAME} {dependency.version}", f"commit:{dependency.git.commit}", make)

    def wheel_folder(self, what: str, identity: str) -> Path:
        """The cache folder for sources of this identity; `what` is their name in messages."""
        content = (what, identity, *build_requirements(), str(sorted(_NO_BACKEND.items())))
        return content_folder(self.folder, content)

    def _make_cached(self, what: str, identity: str, make: Callable[[Path], Path]) -> Wheel:
        def make_here(scratch: Path) -> Path:
            if not self.may_build:
                hint = "this command must not run setup.py: run `wheelfactory verify` on the same wheels first"
                raise BuildError("missing plain wheel to compare with", what, hint)
            logger.info("building the plain wheel of %s, to compare with", what)
            return make(scratch)

        return Wheel.open(cached_wheel(self.wheel_folder(what, identity), self.cache, make_here))
