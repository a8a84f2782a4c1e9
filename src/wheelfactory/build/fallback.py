"""Build the wheels of flash-attention-amd, and of flash-attn that re-exports it, from this checkout's sources.

The wheels have the same bytes wherever and whenever they are built.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from wheelfactory.build.environments import make_build_environment, pip_wheel
from wheelfactory.build.pinned import PinnedProject
from wheelfactory.core.cell import FALLBACK_NAME, product_name
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import FALLBACK_SOURCES, FLASH_ATTN_FALLBACK_SOURCES, files_sha256, read_file
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.matrix.facts import Context

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
