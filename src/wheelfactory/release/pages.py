"""Writes what is generated from a manifest below a release: each page whole, those that nothing leads to removed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wheelfactory.core.files import write_atomic

INDEX = "simple/"
"""The folder of the index, which has nothing else in it."""


def write_pages(folder: Path, pages: Mapping[str, bytes]) -> None:
    """Write pages by their paths below `folder`, and make its index hold exactly those that are given.

    The index comes last, and its leaves before what leads to them, so that no link leads nowhere.
    """
    index = [name for name in pages if name.startswith(INDEX)]
    others = [name for name in pages if not name.startswith(INDEX)]
    for name in [*others, *sorted(index, key=lambda name: (-name.count("/"), name))]:
        write_atomic(folder / name, pages[name])
    for path in (folder / INDEX).rglob("index.html"):
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for path in sorted((folder / INDEX).rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def index_pages(pages: Mapping[str, bytes]) -> int:
    """How many of these pages are of the index."""
    return sum(name.startswith(INDEX) for name in pages)
