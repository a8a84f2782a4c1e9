"""Compiled objects on disk: one folder per kernel set, one journal line per object. Every read verifies the sha256.

::

    <kernels>/<first 16 digits of the key>/set.json       what the key is made of, and the names of all sources;
                                                          its modification time is that of the last use
                                           objects/NAME.o
                                           journal.jsonl  one `ObjectRecord` a line, appended after the object

The journal line commits an object: an object without one does not exist. Truncated lines are ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wheelfactory.core.files import file_sha256, lock_folder, write_atomic
from wheelfactory.core.strict import SHA256, parse_record, read_lines

FORMAT = 3
"""Format number of ``set.json`` and of an archive's manifest."""

_DESCRIPTION = "set.json"

# no slash, so that an object stays in its folder. File systems allow 255 bytes, and ``.o`` follows
_NAME = re.compile(r"[0-9A-Za-z_][!-.0-~]{0,249}")


@dataclass(frozen=True)
class SetKey:
    """Identifies a kernel set: everything that can change its objects, and the names of its sources.

    Raises `ValueError` for another format or an invalid name.
    """

    parts: Mapping[str, Any]
    """By name: compiler, flags, environment, targets, digests of sources and headers."""
    sources: tuple[str, ...]
    """Sorted names of all sources of the set, without extension."""
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"not a kernel set of format {FORMAT}")
        if not all(map(is_source_name, self.sources)):
            raise ValueError("not a kernel set")

    @property
    def digest(self) -> str:
        """The key: sha256 over the parts, 64 hex digits."""
        return hashlib.sha256(json.dumps(dict(self.parts), sort_keys=True).encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """Serialize to the content of ``set.json``."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> SetKey:
        """The inverse of `to_bytes`. Raises `ValueError` for anything else."""
        return parse_record(cls, data)


def is_source_name(name: str) -> bool:
    """Whether this is a valid source name: one path component of plain characters."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class ObjectRecord:
    """One compiled object and its cost: seconds, and MiB of the largest process.

    Raises `ValueError` for an invalid name, digest or number.
    """

    source: str
    targets: tuple[str, ...]
    """Of the set: an arch, ``host``, or all of a whole object."""
    sha256: str
    size: int
    """Bytes of the object."""
    cpu_s: float
    peak_mib: int
    start: float
    """Seconds since 1970."""
    end: float
    made_by: str = ""
    """The worker that compiled it elsewhere, as its server names it; empty for the machine of the build."""
    cached: bool = False
    """Whether that server had the result already, so that this build did not see who made it."""

    def __post_init__(self) -> None:
        is_valid = is_source_name(self.source) and re.fullmatch(SHA256, self.sha256)
        if not is_valid or min(self.size, self.peak_mib, self.cpu_s) < 0:
            raise ValueError(f"not a record of an object: {self.source[:100]}")

    def to_line(self) -> str:
        """Serialize to a journal line."""
        return json.dumps(asdict(self), sort_keys=True) + "\n"


class Store:
    """The folder of one kernel set."""

    def __init__(self, kernels: Path, key: SetKey) -> None:
        self.key = key
        self.folder = kernels / key.digest[:16]
        self.journal = self.folder / "journal.jsonl"
        """The file of `ObjectRecord` lines."""

    @classmethod
    def open(cls, kernels: Path, digest: str) -> Store:
        """Open the store of the key with this digest. Raises `ValueError` if its ``set.json`` has another key."""
        store = cls(kernels, SetKey.from_bytes((kernels / digest[:16] / _DESCRIPTION).read_bytes()))
        if store.key.digest != digest:
            raise ValueError(f"not the store of {digest}")
        return store

    def create(self) -> None:
        """Create the folder if it is missing, and record this use of the set: `last_used` is then now."""
        with lock_sets(self.folder.parent):
            (self.folder / "objects").mkdir(parents=True, exist_ok=True)
            description = self.folder / _DESCRIPTION
            write_atomic(description, self.key.to_bytes())
            os.utime(description)

    def object_path(self, source: str) -> Path:
        """The path of a source's object."""
        return self.folder / "objects" / f"{source}.o"

    def read_records(self) -> dict[str, ObjectRecord]:
        """Read the journal: the saved objects, by source. Does not verify the objects."""
        sources = set(self.key.sources)
        return {entry.source: entry for entry in read_lines(ObjectRecord, self.journal) if entry.source in sources}

    def has_object(self, entry: ObjectRecord) -> bool:
        """Whether the object is there, undamaged."""
        stored = self.object_path(entry.source)
        return stored.is_file() and file_sha256(stored) == entry.sha256

    def find_missing(self, names: Iterable[str]) -> list[str]:
        """Return the sources whose objects are missing or damaged."""
        finished = self.read_records()
        return [name for name in names if name not in finished or not self.has_object(finished[name])]

    def save_object(self, built: Path, entry: ObjectRecord) -> None:
        """Move a compiled object into the store. Raises `OSError`, such as for a full disk; it is then not saved."""
        built.chmod(0o444)  # nothing that reads an object may change it
        # not synced: a power cut may leave an empty file, which is not what its record says and is compiled again
        built.replace(self.object_path(entry.source))
        self._append_record(entry)

    def remove_objects(self, entries: Iterable[ObjectRecord]) -> None:
        """Remove saved objects, so that the next build makes them again."""
        for entry in entries:
            self.object_path(entry.source).unlink(missing_ok=True)

    def _append_record(self, entry: ObjectRecord) -> None:
        """Append the journal line of a saved object."""
        with self.journal.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                # finish a truncated last line, so that the new one does not become a part of it
                file.write(b"\n" * (file.read(1) != b"\n"))
            file.write(entry.to_line().encode())


def lock_sets(kernels: Path) -> AbstractContextManager[None]:
    """Lock the store `kernels` against the creation and removal of sets, after any other process has released it."""
    # not the folder itself: a store can be in a scratch folder, which its own process has locked
    return lock_folder(kernels / "lock", wait=True)


def last_used(folder: Path) -> int | None:
    """When a command last used the kernel set in `folder`, in nanoseconds since 1970; None if there is no set."""
    try:
        return (folder / _DESCRIPTION).stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None
