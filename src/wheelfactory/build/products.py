"""The sources and the build of each product."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from wheelfactory.build.environments import make_build_environment, pip_wheel
from wheelfactory.build.fallback import pin_fallback
from wheelfactory.build.pinned import PinnedProject, make_wheel
from wheelfactory.build.sources import fetch_git, unpack_source
from wheelfactory.core.cell import AITER_NAME, FALLBACK_NAME, FLASH_ATTN_FALLBACK
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.facts import Context
from wheelfactory.wheel.corrections import corrections_id
from wheelfactory.wheel.rewrite import finish_pure_wheel

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
