"""Build the Triton-only wheel of aiter, which the previews of flash-attn take their Triton kernels from.

Two variables make aiter's setup.py skip everything that needs ROCm, so one pure Python wheel fits every cell.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from wheelfactory.build.environments import (
    build_requirements,
    cached_wheel,
    content_folder,
    copy_wheel,
    make_build_environment,
    pip_wheel,
)
from wheelfactory.build.sources import Source, fetch_git, unpack_source
from wheelfactory.core.cell import AITER_NAME
from wheelfactory.core.errors import BuildError
from wheelfactory.core.progress import logger
from wheelfactory.matrix.origins import Dependency
from wheelfactory.wheel.activation.corrections import corrections_id
from wheelfactory.wheel.rewrite import finish_pure_wheel

# variables that aiter's setup.py reads, observed for commit 9bab8388: no ROCm modules, and no pip install of a Triton
_VARIABLES = {"AITER_TRITON_ONLY": "1", "AITER_USE_SYSTEM_TRITON": "1"}

UNUSED_REQUIREMENTS = frozenset({"psutil", "packaging"})
"""Requirements of aiter that flash-attn's kernels never import; no index of ours has them."""


def fetch_aiter(dependency: Dependency, cache: Path, environ: Mapping[str, str]) -> Source:
    """Fetch the pinned sources. Raises `SourceError`."""
    assert dependency.git
    return fetch_git(f"aiter-{dependency.version}", dependency.git, cache / "sources", environ)


def build_aiter(dependency: Dependency, folder: Path, cache: Path, environ: Mapping[str, str]) -> Path:
    """Build the wheel into `folder`, or copy it from the cache. Raises the errors of `make_aiter`."""
    return copy_wheel(make_aiter(dependency, cache, environ), folder)


def make_aiter(dependency: Dependency, cache: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of the wheel in the cache; build it if it is not there.

    Raises `SourceError` if the sources cannot be fetched, `BuildError` if the build fails or makes another wheel.
    """
    source = fetch_aiter(dependency, cache, environ)

    def make(scratch: Path) -> Path:
        logger.info("building %s", AITER_NAME)
        raw = run_aiter_setup(source, scratch, cache)
        made = finish_pure_wheel(raw, dependency.version, UNUSED_REQUIREMENTS, scratch)
        if made.name != dependency.wheel:
            hint = f"expected {dependency.wheel}: check the commit in matrix.yaml"
            raise BuildError("the build made an unexpected wheel", made.name, hint)
        return made

    changes = (corrections_id(), str(sorted(UNUSED_REQUIREMENTS)))
    made_by = (*changes, str(sorted(_VARIABLES.items())), *build_requirements())
    return cached_wheel(content_folder(cache / "raw", (source.identity, dependency.wheel, *made_by)), cache, make)


def run_aiter_setup(source: Source, scratch: Path, cache: Path) -> Path:
    """Run setup.py in `scratch` and return the raw wheel. Raises `BuildError`."""
    tree = unpack_source(source, scratch / "source")
    # setup.py calls a script in it that installs a Triton by pip, and goes on where there is no such script
    shutil.rmtree(tree / ".github", ignore_errors=True)
    return pip_wheel(make_build_environment(cache), tree, scratch / "raw", source.epoch, _VARIABLES)
