"""Collect the symbols against which the loader resolves an extension: from Python and all needed libraries.

Standard library only, because it also runs inside the image of a cell, next to the libraries.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.wheel.elf.dynamic import Dynamic, read_dynamic
from wheelfactory.wheel.elf.image import ElfImage

SYSTEM_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib/aarch64-linux-gnu",
)
"""Where Debian and Red Hat keep shared libraries."""


@dataclass(frozen=True)
class Scope:
    """The defined symbols, and the libraries that are missing."""

    defined: frozenset[str]
    missing: tuple[str, ...]


def load_scope(needed: Sequence[str], interpreter: Path, folders: Sequence[Path]) -> Scope:
    """Search the folders for the `needed` libraries and, transitively, for the libraries that those need.

    Raises `DamagedElfError` if a library is damaged.
    """
    seen, missing = set[str](), set[str]()
    dynamic = _read_dynamic_table(interpreter)
    defined = set(dynamic.defined)  # with a static libpython, the interpreter itself defines Py*
    waiting = [*needed, *dynamic.needed]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            missing.add(name)
            continue
        dynamic = _read_dynamic_table(path)
        defined |= dynamic.defined
        waiting += dynamic.needed
    return Scope(frozenset(defined), tuple(sorted(missing)))


def _read_dynamic_table(path: Path) -> Dynamic:
    with path.open("rb") as file:
        return read_dynamic(ElfImage(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
