"""A small aiter: a git repository whose setup.py leaves out, requires and calls itself what the real one does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from wheel_factory import make_wheel, metadata_text, small_machine
from wheelfactory.build.products import plain_folder
from wheelfactory.core.cell import Cell
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.origins import Dependency

VERSION = "0.0.20260602"
WHEEL = f"amd_aiter-{VERSION}-py3-none-any.whl"
PREVIEW = Cell.parse("fa2.8.4+git4a948e9-rocm7.2-torch2.13.0-py3-triton")
"""A cell that takes its kernels from it."""

SETUP = """
import os, subprocess
from setuptools import Distribution, setup

if os.environ.get("AITER_TRITON_ONLY") != "1":
    raise SystemExit("would build ROCm modules")
if os.path.exists(".github/scripts/install_triton.sh"):
    raise SystemExit("would install a Triton")


class ForcePlatlib(Distribution):
    def has_ext_modules(self):
        return True


setup(
    name="amd-aiter",
    packages=["aiter"],
    python_requires=">=3.8",
    install_requires=["einops", "packaging", "psutil"],
    distclass=ForcePlatlib,
)
"""

KERNELS = "aiter/ops/triton/_triton_kernels/flash_attn_triton_amd/interface_v2.py"

KERNELS_TEXT = """
def bwd(): ...
def fwd(): ...
def fwd_kvcache(): ...
def varlen_bwd(): ...
def varlen_fwd(gen_=None, num_splits=0): ...
"""
"""The module of `KERNELS`, with the parameter that its older versions lack."""


def make_aiter_repository(folder: Path) -> Dependency:
    """Commit the sources to a new repository and return its pin."""
    files = {"setup.py": SETUP, "aiter/__init__.py": "", ".github/scripts/install_triton.sh": "exit 1\n"}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _git(folder, "init", "--quiet")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message=work")
    return pin(folder.as_uri(), _git(folder, "rev-parse", "HEAD"))


def pin(repository: str = "https://example.org/aiter", commit: str = "9" * 40) -> Dependency:
    """The entry of matrix.yaml for a commit."""
    git = {"repository": repository, "commit": commit, "submodules": {}}
    facts = {"version": VERSION, "wheel": WHEEL, "git": git, "source": "written for the tests"}
    return Dependency.model_validate(facts)


def aiter_machine(cache: Path, dependency: Dependency, environ: Mapping[str, str] = MappingProxyType({})) -> Context:
    """A small machine whose matrix pins aiter."""
    small = small_machine(cache, environ)
    return replace(small, matrix=small.matrix.model_copy(update={"dependencies": {"amd-aiter": dependency}}))


def keep_plain_aiter(cache: Path, dependency: Dependency) -> Path:
    """Put the plain wheel of a pin into the cache, as setup.py names it."""
    assert dependency.git
    folder = plain_folder("amd-aiter", VERSION, f"commit:{dependency.git.commit}", cache)
    return make_wheel(
        folder,
        name="amd_aiter",
        version="0.0.0",
        tags="cp311-cp311-linux_x86_64",
        metadata=metadata_text("0.0.0", name="amd-aiter", requires=["einops", "packaging", "psutil"]),
        members={"aiter/__init__.py": b"# kernels\n" * 100_000},
    )


def _git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{key}": "tester@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    environ = {**os.environ, **who, "GIT_COMMITTER_DATE": "1780358400 +0000", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()
