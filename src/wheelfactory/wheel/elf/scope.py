"""What the loader has when it resolves an extension: the names that its libraries, theirs and the interpreter define.

Standard library only, as it is also run where the libraries are: in the image of a cell.
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
    """What the loader has found when it resolves an extension: which names are defined, which libraries are missing."""

    defined: frozenset[str]
    libraries: tuple[str, ...]
    missing: tuple[str, ...]


def load_scope(needed: Sequence[str], interpreter: Path, folders: Sequence[Path]) -> Scope:
    """The names that an extension can be resolved with: those of its libraries, of theirs, and of the interpreter."""
    found: list[str] = []
    missing: list[str] = []
    dynamic = _dynamic(interpreter)
    defined = set(dynamic.defined)
    waiting = [*needed, *dynamic.needed]
    while waiting:
        name = waiting.pop()
        if name in found or name in missing:
            continue
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            missing.append(name)
            continue
        found.append(name)
        dynamic = _dynamic(path)
        defined |= dynamic.defined
        waiting += dynamic.needed
    return Scope(frozenset(defined), tuple(sorted(found)), tuple(sorted(missing)))


def _dynamic(path: Path) -> Dynamic:
    with path.open("rb") as file:
        return read_dynamic(ElfImage(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
