"""Objects of kernel sets on disk: one folder a set, a journal line an object, nothing trusted without its sha256.

::

    <kernels>/<first 16 digits of the key>/set.json       what the key is made of, and the names of all sources
                                           objects/NAME.o
                                           journal.jsonl  one `Finished` a line, appended when the object is in place

The journal line is the commit point: an object without one does not exist. A line that a kill cut short is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

FORMAT = 1
"""Of ``set.json`` and of the manifest of an archive."""


@dataclass(frozen=True)
class SetKey:
    """Everything that can change an object of a kernel set, and the sources it is made of."""

    parts: Mapping[str, Any]
    """What is known by name: compiler, flags, environment, archs, and digests of sources and headers."""
    sources: tuple[str, ...]
    """Names of all sources of the set, without extension, sorted."""

    @property
    def digest(self) -> str:
        """The key: 64 hex digits."""
        return hashlib.sha256(json.dumps(dict(self.parts), sort_keys=True).encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """As ``set.json`` holds it."""
        document = {"format": FORMAT, "key": self.digest, "parts": dict(self.parts), "sources": self.sources}
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> SetKey:
        """The inverse of `to_bytes`. Raises `ValueError` if `data` is something else or its key is not that of its parts."""
        document = json.loads(data)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError("not a kernel set of format 1")
        parts, sources = document.get("parts"), document.get("sources")
        if not isinstance(parts, dict) or not isinstance(sources, list) or not all(map(_is_name, sources)):
            raise ValueError("not a kernel set")
        key = cls(parts, tuple(sources))
        if key.digest != document.get("key"):
            raise ValueError("its key is not that of its parts")
        return key


def _is_name(value: object) -> bool:
    """Whether it can be the name of a source: one that stays in the folder it is joined to."""
    return isinstance(value, str) and value not in ("", ".", "..") and "/" not in value and "\0" not in value


@dataclass(frozen=True)
class Finished:
    """One compiled object, and what it cost; times in seconds, memory in MiB (the largest process)."""

    source: str
    archs: tuple[str, ...]
    sha256: str
    size: int
    """Bytes of the object."""
    cpu_s: float
    peak_mib: int
    start: float
    """Seconds since 1970."""
    end: float
    cached: bool
    """Whether a compiler cache had it; its costs then say nothing about the compiler."""

    def to_line(self) -> str:
        """One line of the journal."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    @classmethod
    def from_line(cls, line: str) -> Finished | None:
        """The inverse of `to_line`; None for a line that is cut short or something else."""
        try:
            document = json.loads(line)
            entry = cls(**{**document, "archs": tuple(document["archs"])})
        except (ValueError, TypeError, KeyError):
            return None
        numbers = (entry.size, entry.cpu_s, entry.peak_mib, entry.start, entry.end)
        sound = all(isinstance(number, (int, float)) for number in numbers) and isinstance(entry.sha256, str)
        return entry if sound and _is_name(entry.source) else None


FIELDS = tuple(field.name for field in fields(Finished))


class Store:
    """The folder of one kernel set."""

    def __init__(self, kernels: Path, key: SetKey) -> None:
        self.key = key
        self.folder = kernels / key.digest[:16]

    def make(self) -> None:
        """Make the folder, if it is not there."""
        (self.folder / "objects").mkdir(parents=True, exist_ok=True)
        with _written(self.folder / "set.json") as path:
            path.write_bytes(self.key.to_bytes())

    def path(self, source: str) -> Path:
        """Where the object of a source is."""
        return self.folder / "objects" / f"{source}.o"

    @property
    def journal(self) -> Path:
        """The file of `Finished` lines."""
        return self.folder / "journal.jsonl"

    def finished(self) -> dict[str, Finished]:
        """The objects that are in place, by source; an object that was changed since is still listed."""
        return {entry.source: entry for entry in read_journal(self.journal) if entry.source in set(self.key.sources)}

    def take(self, entry: Finished, destination: Path) -> bool:
        """Put an object where a linker looks for it, if it is there and what the journal says; whether it was."""
        kept = self.path(entry.source)
        if not kept.is_file() or sha256_of(kept) != entry.sha256:
            return False
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.unlink(missing_ok=True)
        try:
            os.link(kept, destination)
        except OSError:  # another file system, or one without links
            shutil.copyfile(kept, destination)
        return True

    def keep(self, built: Path, entry: Finished) -> None:
        """Keep a compiled object. Raises `OSError`, such as for a full disk; the object is then not kept."""
        with _written(self.path(entry.source)) as path:
            shutil.copyfile(built, path)
        self.record(entry)

    def record(self, entry: Finished) -> None:
        """Say that an object is in place."""
        with self.journal.open("ab") as file:
            file.write(b"\n" * _is_torn(self.journal) + entry.to_line().encode())


def _is_torn(journal: Path) -> bool:
    """Whether the last line was cut short, so that what is appended would become part of it."""
    with journal.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def read_journal(path: Path) -> Iterator[Finished]:
    """What a journal says, in order; nothing if there is none."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            entry = Finished.from_line(line)
            if entry:
                yield entry


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _written(path: Path) -> Iterator[Path]:
    """A place to write to that becomes `path` when the block ends well; what is there is replaced at once."""
    descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    os.close(descriptor)
    written = Path(name)
    try:
        yield written
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
