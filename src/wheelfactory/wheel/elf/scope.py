"""What the loader has when it resolves an extension: the names that its libraries, theirs and the interpreter define.

Standard library only, as it is also run where the libraries are: in the image of a cell.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.wheel.elf.dynamic import Dynamic, read_dynamic
from wheelfactory.wheel.elf.image import Image

SYSTEM = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib/aarch64-linux-gnu")
"""Where Debian and Red Hat keep shared libraries."""


@dataclass(frozen=True)
class Scope:
    """What the loader has found when it resolves an extension: which names are defined, which libraries are missing."""

    defined: frozenset[str]
    libraries: tuple[str, ...]
    missing: tuple[str, ...]


def load_scope(needed: Sequence[str], interpreter: Path, folders: Sequence[Path]) -> Scope:
    """The names that an extension can be resolved with: those of its libraries, of theirs, and of the interpreter."""
    defined: set[str] = set()
    found: list[str] = []
    missing: list[str] = []
    waiting = list(needed)
    seen = set(waiting)
    roots = [_dynamic(interpreter)]
    while roots or waiting:
        dynamic = roots.pop() if roots else _library(waiting.pop(), folders, found, missing)
        defined |= dynamic.defined
        new = [name for name in dynamic.needed if name not in seen]
        seen.update(new)
        waiting += new
    return Scope(frozenset(defined), tuple(sorted(found)), tuple(sorted(missing)))


def _library(name: str, folders: Sequence[Path], found: list[str], missing: list[str]) -> Dynamic:
    for folder in folders:
        if (folder / name).is_file():
            found.append(name)
            return _dynamic(folder / name)
    missing.append(name)
    return Dynamic()


def _dynamic(path: Path) -> Dynamic:
    with path.open("rb") as file:
        return read_dynamic(Image(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
