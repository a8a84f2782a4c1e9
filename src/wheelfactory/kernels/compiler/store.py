"""Objects of kernel sets on disk: one folder a set, a journal line an object, nothing trusted without its sha256.

::

    <kernels>/<first 16 digits of the key>/set.json       what the key is made of, and the names of all sources
                                           objects/NAME.o
                                           journal.jsonl  one `ObjectRecord` a line, appended when the object is in place

The journal line is the commit point: an object without one does not exist. A line that a kill cut short is ignored.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheelfactory.core.digest import SHA256, file_sha256
from wheelfactory.core.files import atomic_path, write_atomic

FORMAT = 1
"""Of ``set.json`` and of the manifest of an archive."""

_NAME = re.compile(r"[0-9A-Za-z_][!-.0-~]{0,249}")
"""Without a slash, so that it stays in its folder; a file system takes 255 bytes, and ``.o`` follows."""


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
        """The inverse of `to_bytes`. Raises `ValueError` for anything else, or a key that is not that of its parts."""
        try:
            return cls.from_document(json.loads(data))
        except RecursionError:
            raise ValueError("nested too deeply") from None

    @classmethod
    def from_document(cls, document: Any) -> SetKey:
        """The same of JSON that was read, which may say more. Raises `ValueError`."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError("not a kernel set of format 1")
        parts, sources = document.get("parts"), document.get("sources")
        if not isinstance(parts, dict) or not isinstance(sources, list) or not all(map(is_source_name, sources)):
            raise ValueError("not a kernel set")
        key = cls(parts, tuple(sources))
        if key.digest != document.get("key"):
            raise ValueError("its key is not that of its parts")
        return key


def is_source_name(value: object) -> bool:
    """Whether it can be the name of a source: plain, and of one part."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


@dataclass(frozen=True)
class ObjectRecord:
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
    def from_line(cls, line: str) -> ObjectRecord | None:
        """The inverse of `to_line`; None for a line that is cut short or something else."""
        try:
            return cls.from_document(json.loads(line))
        except (ValueError, RecursionError):
            return None

    @classmethod
    def from_document(cls, document: Any) -> ObjectRecord | None:
        """The same of JSON that was read."""
        try:
            entry = cls(**{**document, "archs": tuple(document["archs"])})
            counts, times = (entry.size, entry.peak_mib), (entry.cpu_s, entry.start, entry.end)
            sound = (
                is_source_name(entry.source)
                and all(isinstance(arch, str) for arch in entry.archs)
                and re.fullmatch(SHA256, entry.sha256)
                and all(isinstance(count, int) and count >= 0 for count in counts)
                and all(isinstance(time, (int, float)) and math.isfinite(time) for time in times)
                and entry.cpu_s >= 0
                and isinstance(entry.cached, bool)
            )
        except (TypeError, KeyError, OverflowError):  # no object, without archs, a number beyond what a float can be
            return None
        return entry if sound else None


class Store:
    """The folder of one kernel set."""

    def __init__(self, kernels: Path, key: SetKey) -> None:
        self.key = key
        self.folder = kernels / key.digest[:16]
        self.journal = self.folder / "journal.jsonl"
        """The file of `ObjectRecord` lines."""

    @classmethod
    def open(cls, kernels: Path, digest: str) -> Store:
        """The store of the key with this digest. Raises `ValueError` if its ``set.json`` is of another key."""
        store = cls(kernels, SetKey.from_bytes((kernels / digest[:16] / "set.json").read_bytes()))
        if store.key.digest != digest:
            raise ValueError(f"not the store of {digest}")
        return store

    def create(self) -> None:
        """Make the folder, if it is not there."""
        (self.folder / "objects").mkdir(parents=True, exist_ok=True)
        write_atomic(self.folder / "set.json", self.key.to_bytes())

    def object_path(self, source: str) -> Path:
        """Where the object of a source is."""
        return self.folder / "objects" / f"{source}.o"

    def read_records(self) -> dict[str, ObjectRecord]:
        """The objects that are in place, by source; an object that was changed since is still listed."""
        sources = set(self.key.sources)
        return {entry.source: entry for entry in read_journal(self.journal) if entry.source in sources}

    def restore_object(self, entry: ObjectRecord, destination: Path) -> bool:
        """Put an object where a linker looks for it, if it is there and what the journal says; whether it was."""
        kept = self.object_path(entry.source)
        if not kept.is_file() or file_sha256(kept) != entry.sha256:
            return False
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.unlink(missing_ok=True)
        try:
            os.link(kept, destination)
        except OSError:  # another file system, or one without links
            with atomic_path(destination) as path:
                shutil.copyfile(kept, path)
        return True

    def save_object(self, built: Path, entry: ObjectRecord) -> None:
        """Keep a compiled object. Raises `OSError`, such as for a full disk; the object is then not kept."""
        with atomic_path(self.object_path(entry.source)) as path:
            shutil.copyfile(built, path)
        self.append_record(entry)

    def append_record(self, entry: ObjectRecord) -> None:
        """Say that an object is in place."""
        with self.journal.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                # what is appended must not become part of a last line that was cut short
                file.write(b"\n" * (file.read(1) != b"\n"))
            file.write(entry.to_line().encode())


def read_journal(path: Path) -> Iterator[ObjectRecord]:
    """What a journal says, in order; nothing if there is none."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            entry = ObjectRecord.from_line(line)
            if entry:
                yield entry
