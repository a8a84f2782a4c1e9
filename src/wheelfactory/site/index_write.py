"""Writes the pages of an index below a release: each page whole, those that nothing leads to any more removed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wheelfactory.core.files import write_atomic


def write_index(folder: Path, pages: Mapping[str, str]) -> None:
    """Make ``simple/`` below `folder` hold exactly these pages; leaves come first, so that no link leads nowhere."""
    for name in sorted(pages, key=lambda name: (-name.count("/"), name)):
        write_atomic(folder / name, pages[name].encode("utf-8"))
    for path in (folder / "simple").rglob("index.html"):
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for path in sorted((folder / "simple").rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
