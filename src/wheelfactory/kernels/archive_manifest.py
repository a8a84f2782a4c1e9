"""The manifest of a kernel archive: its kernel set, its objects, how each was compiled and what it cost."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.strict import parse_record
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.compiler.store import FORMAT, ObjectRecord, SetDescription, SetKey
from wheelfactory.kernels.proof import Proof

# the size field of a tar header has 11 octal digits
_MAX_OBJECT_BYTES = (1 << 33) - 1
# nesting levels of key parts; ours have 2
_MAX_KEY_DEPTH = 8
_SET_ID = re.compile("[0-9A-Za-z][0-9A-Za-z._+-]{0,99}")

ARCHIVE_SUFFIX = ".tar.zst"


def shard_suffix(shard: str | None) -> str:
    """Return the suffix of a shard archive's name: ``.shard-2-of-8`` for ``2/8``, empty for a whole set."""
    return f".shard-{shard.replace('/', '-of-')}" if shard else ""


def archive_set_id(file_name: str) -> str:
    """Return the id of the set whose complete archive has this file name; empty if it is no such name."""
    found = re.fullmatch(rf"(.+)-[0-9a-f]{{16}}{re.escape(ARCHIVE_SUFFIX)}", file_name)
    return found[1] if found else ""


@dataclass(frozen=True)
class ArchiveManifest:
    """The content of ``manifest.json`` in a kernel archive."""

    set_id: str
    """The readable name of the kernel set. Only the key identifies it."""
    set_key: SetKey
    """The key of the whole set, even in the archive of a shard."""
    shard: str | None
    """Such as ``2/8``; None for a whole set."""
    expected: tuple[str, ...]
    """Sorted names of the sources that a complete archive covers: the shard's, or the whole set's."""
    objects: Mapping[str, ObjectRecord]
    """By source."""
    proof: Proof | None = None
    """Which of its kernels were executed; None for host code, a shard, or before `kernels SET --prove`."""

    @property
    def is_partial(self) -> bool:
        """Whether objects are missing because the compile ran out of time."""
        return len(self.objects) < len(self.expected)

    @property
    def key(self) -> str:
        """The key of the set: 64 hex digits."""
        return self.set_key.digest

    @property
    def totals(self) -> dict[str, float]:
        """Sums over all objects: ``size`` in bytes (identical objects count each time) and ``cpu_s`` in CPU seconds.

        ``peak_mib`` is the maximum over the compiles.
        """
        entries = self.objects.values()
        return {
            "objects": len(entries),
            "size": sum(entry.size for entry in entries),
            "cpu_s": round(sum(entry.cpu_s for entry in entries), 3),
            "peak_mib": max((entry.peak_mib for entry in entries), default=0),
        }

    @property
    def file_name(self) -> str:
        """Such as ``ck-62327233-rocm6.4-gfx942-0123456789abcdef.shard-2-of-8.tar.zst``."""
        return f"{self.set_id}-{self.key[:16]}{shard_suffix(self.shard)}{ARCHIVE_SUFFIX}"

    def group_by_content(self) -> Iterator[tuple[ObjectRecord, ...]]:
        """Yield the objects that share each distinct content, in archive order."""
        entries = sorted(self.objects.values(), key=lambda entry: (entry.sha256, entry.source))
        for _, group in groupby(entries, key=lambda entry: entry.sha256):
            yield tuple(group)

    def to_bytes(self) -> bytes:
        """Serialize to JSON; the same objects give the same bytes."""
        objects = {source: asdict(entry) for source, entry in self.objects.items()}
        for costs in objects.values():
            del costs["source"]
        document = {
            "format": FORMAT,
            **asdict(self.set_key),
            "set": self.set_id,
            "key": self.key,
            "shard": self.shard,
            "expected": self.expected if self.shard else None,
            "totals": self.totals,
            "objects": objects,
        }
        if self.proof:
            document["proof"] = asdict(self.proof)
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def make_archive_manifest(
    key: SetKey, set_id: str, shard: str | None, entries: Iterable[ObjectRecord], expected: Iterable[str]
) -> ArchiveManifest:
    """Make the manifest of these objects of a set, or of one shard with the sources `expected`.

    Raises `InputError` for an invalid set id, `BuildError` if an archive cannot hold the objects.
    """
    if not _SET_ID.fullmatch(set_id):
        raise InputError("invalid kernel set id", set_id, "use letters, digits and . _ + -")
    objects = {entry.source: entry for entry in sorted(entries, key=lambda entry: entry.source)}
    sources = tuple(sorted(set(key.sources)))
    names = sources if shard is None else tuple(sorted(set(expected)))
    manifest = ArchiveManifest(set_id, SetKey(key.parts, sources), shard, names, objects)
    try:
        _require_packable(manifest)
    except ValueError as error:
        hint = "remove them from the cache, and compile them again"
        raise BuildError("cannot pack objects", str(error), hint) from None
    return manifest


def parse_archive_manifest(data: bytes, place: str) -> ArchiveManifest:
    """Parse and verify the JSON of a manifest. Raises `InputError`, which names `place`, if it is invalid."""
    try:
        return _manifest(parse_record(_Document, data))
    except ValueError as error:
        hint = "pack it again with this version of wheelfactory"
        raise InputError("damaged kernel manifest", f"{place}: {error}", hint) from None


@dataclass(frozen=True)
class _Document(SetDescription):
    """The JSON object of a manifest."""

    set: str
    shard: str | None
    expected: tuple[str, ...] | None
    totals: Mapping[str, float]
    objects: Mapping[str, Mapping[str, Any]]
    proof: Proof | None = None


def _manifest(found: _Document) -> ArchiveManifest:
    """Create the manifest. Raises `ValueError` at the first problem."""
    # only the first: a hostile manifest could have millions of problems
    key = found.set_key
    if not _is_shallow(key.parts, _MAX_KEY_DEPTH):
        raise ValueError("its key parts are nested too deeply")
    if list(key.sources) != sorted(set(key.sources)):
        raise ValueError("its sources are not sorted and unique")
    if not _SET_ID.fullmatch(found.set):
        raise ValueError("its kernel set id is invalid")
    if found.shard is not None and str(Shard.parse(found.shard)) != found.shard:
        raise ValueError("its shard is not of the form 2/8")
    if (found.shard is None) != (found.expected is None):
        raise ValueError("only the archive of a shard lists its sources")
    expected = key.sources if found.expected is None else found.expected
    if list(expected) != sorted(set(expected)) or not {*expected} <= {*key.sources}:
        raise ValueError("its shard sources are not sorted and unique sources of the set")
    objects = _parse_objects(found.objects, {*expected})
    manifest = ArchiveManifest(found.set, key, found.shard, expected, objects, found.proof)
    _require_packable(manifest)
    if found.totals != manifest.totals:
        raise ValueError("its totals are not the sums over its objects")
    return manifest


def _is_shallow(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(item, levels - 1) for item in items)


def _parse_objects(objects: Mapping[str, Mapping[str, Any]], sources: Collection[str]) -> dict[str, ObjectRecord]:
    found: dict[str, ObjectRecord] = {}
    for source, costs in objects.items():
        entry = ObjectRecord.from_document({**costs, "source": source})
        if entry is None or source not in sources:
            raise ValueError(f"an object is invalid or not of this set: {source[:100]}")
        found[source] = entry
    return found


def _require_packable(manifest: ArchiveManifest) -> None:
    for duplicates in manifest.group_by_content():
        if len({entry.size for entry in duplicates}) > 1:
            raise ValueError(f"two sizes for one sha256: {duplicates[0].source}")
        if duplicates[0].size > _MAX_OBJECT_BYTES:
            raise ValueError(f"{duplicates[0].source} has {duplicates[0].size} bytes, the limit is {_MAX_OBJECT_BYTES}")
