"""Wheels that are the same for every ROCm and torch, `WITHOUT_CELL`: their pinned sources, and their builds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wheelfactory.build.aiter import build_aiter
from wheelfactory.build.fallback import FallbackProject, build_fallback, read_fallback_project
from wheelfactory.core.cell import FALLBACK_NAME
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.origins import Dependency


def read_pure_project(name: str, dependencies: Mapping[str, Dependency]) -> FallbackProject | Dependency:
    """Return the pinned sources of the wheel of `WITHOUT_CELL` with this name.

    Raises `InputError` if the matrix builds no aiter, or the checkout lacks the sources of flash-attention-amd.
    """
    if name == FALLBACK_NAME:
        return read_fallback_project()
    dependency = dependencies.get(name)
    if dependency is None or dependency.git is None:
        hint = f"add {name} with git to its dependencies"
        raise InputError("not built by this matrix.yaml", name, hint)
    return dependency


def build_pure(project: FallbackProject | Dependency, folder: Path, cache: Path, environ: Mapping[str, str]) -> Path:
    """Build a wheel that is the same for every ROCm and torch into `folder`, or copy it from the cache.

    Raises `SourceError` or `BuildError`.
    """
    if isinstance(project, Dependency):
        return build_aiter(project, folder, cache, environ)
    return build_fallback(project, folder, cache)
