"""The sources of flash-attention-amd -> what its wheel must be, and the wheel.

It has no label, and the same bytes wherever and whenever it is built.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from wheelfactory.build.environments import build_requirements, make_build_environment, pip_wheel
from wheelfactory.core.cell import FALLBACK_NAME
from wheelfactory.core.checkout import FALLBACK_SOURCES
from wheelfactory.core.digest import content_key
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.files import atomic_path, read_file, scratch_dir
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.core.progress import logger
from wheelfactory.wheel.rewrite import rewrite_wheel

PACKAGE = "flash_attention_amd"
"""The package that its wheel holds, and how the wheel spells its name."""

LICENSE = "LICENSE"
_BUILD_FILES = ("pyproject.toml", "README.md", LICENSE)
"""What the build reads beside the package."""

_KEYS = ("name", "version", "requires-python", "dependencies")


class _Stated(FrozenModel):
    """What pyproject.toml states."""

    name: Literal["flash-attention-amd"]
    version: str
    requires_python: str = Field(alias="requires-python")
    dependencies: tuple[str, ...]


@dataclass(frozen=True)
class FallbackProject:
    """The distribution as its sources have it."""

    version: str
    requires_python: str
    requires: tuple[str, ...]
    build_files: Mapping[str, bytes]
    """By name, beside the package."""
    members: Mapping[str, bytes]
    """The files of the package, by their names in the wheel."""

    @property
    def filename(self) -> str:
        """What its wheel is called: no label, as it is the same for every ROCm and torch."""
        return f"{PACKAGE}-{self.version}-py3-none-any.whl"

    @property
    def identity(self) -> str:
        """``sha256:...`` over names and contents of all that the wheel is made from."""
        digest = hashlib.sha256()
        for name, data in sorted({**self.build_files, **self.members}.items()):
            digest.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
        return f"sha256:{digest.hexdigest()}"

    def write_sources(self, folder: Path) -> None:
        """Write them into `folder`, and nothing else that a checkout may have there: builds leave folders of theirs."""
        for name, data in {**self.build_files, **{f"src/{name}": data for name, data in self.members.items()}}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def read_fallback_project() -> FallbackProject:
    """What the factory has.

    Raises `InputError` if a file that the build reads is missing, or pyproject.toml does not say what it must.
    """
    stated = _stated(FALLBACK_SOURCES / "pyproject.toml")
    package = FALLBACK_SOURCES / "src" / PACKAGE
    files = [*package.rglob("*.py"), package / "py.typed"]  # what else lies there, no build takes along
    return FallbackProject(
        version=stated.version,
        requires_python=stated.requires_python,
        requires=stated.dependencies,
        build_files={name: _read(FALLBACK_SOURCES / name) for name in _BUILD_FILES},
        members={path.relative_to(package.parent).as_posix(): _read(path) for path in files},
    )


def is_unknown_fallback(name: str, version: str) -> bool:
    """Whether a project of this name and version is a fallback that the factory has not: it can verify none of that."""
    return name == FALLBACK_NAME and version != read_fallback_project().version


def _read(path: Path) -> bytes:
    hint = "install the factory again, or restore the file from git"
    return read_file(path, InputError("cannot read the project", str(path), hint))


def _stated(path: Path) -> _Stated:
    """The keys of ``[project]`` whose values are JSON as well, as texts and lists on one line are.

    The standard library reads TOML only from Python 3.11 on.
    """
    section = _read(path).decode().partition("\n[project]\n")[2].partition("\n[")[0]
    pairs = [line.partition(" = ") for line in section.splitlines()]
    hint = f"it has {', '.join(_KEYS)} in [project], each on one line"
    try:
        stated = {name: json.loads(value) for name, _, value in pairs if name in _KEYS}
    except ValueError as error:
        raise InputError("cannot read the project", f"{path}: {error}", hint) from None
    return parse_model(_Stated, stated, InputError("cannot read the project", str(path), hint))


ZIP_EPOCH = 315532800
"""The time of everything in it: the first that a zip file can tell, 1980-01-01. Its sources have no time of their own,
as a checkout gives files that of the checkout."""


def build_fallback(project: FallbackProject, folder: Path, cache: Path) -> Path:
    """Write the wheel into `folder`, made by setuptools unless the cache has it. Raises `BuildError`."""
    content = "\n".join([project.identity, *build_requirements()])  # all that it is made from
    kept, path = cache / "raw" / content_key(content) / project.filename, folder / project.filename
    if not kept.is_file():
        _make(project, kept, cache)
    with atomic_path(path) as written:
        shutil.copyfile(kept, written)
    return path


def _make(project: FallbackProject, kept: Path, cache: Path) -> None:
    environment = make_build_environment(cache)
    logger.info("building %s", FALLBACK_NAME)
    with scratch_dir(cache) as scratch:
        project.write_sources(scratch / "source")
        raw = pip_wheel(environment, scratch / "source", scratch / "raw", ZIP_EPOCH, {})
        if raw.name != project.filename:
            raise BuildError("the build made another wheel", raw.name, f"its sources promise {project.filename}")
        with atomic_path(kept) as written:
            rewrite_wheel(raw, scratch).replace(written)
