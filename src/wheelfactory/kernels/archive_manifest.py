"""The manifest of a kernel archive: of which set, which objects of it, how they were compiled and what they cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.compiler.store import FORMAT, ObjectRecord, SetKey

_LARGEST = (1 << 33) - 1
"""Bytes of an object: what the size field of a tar header holds, 11 octal digits."""
_DEEPEST = 8
"""Levels of the parts of a key; ours have 2."""
_SET_ID = re.compile("[0-9A-Za-z][0-9A-Za-z._+-]{0,99}")
_NAMES = {"format", "set", "key", "shard", "wanted", "totals", "parts", "sources", "objects"}


ARCHIVE_SUFFIX = ".tar.zst"
"""Of the name of an archive."""
PARTIAL_SUFFIX = ".partial"
"""Stands before that if sources are left to compile."""


def shard_suffix(shard: str | None) -> str:
    """How a shard such as ``2/8`` stands in the name of its archive: ``.shard-2-of-8``; nothing for a whole set."""
    return f".shard-{shard.replace('/', '-of-')}" if shard else ""


@dataclass(frozen=True)
class ArchiveManifest:
    """What a kernel archive says of itself."""

    set_id: str
    """The name of the kernel set for people; the key is what counts."""
    set_key: SetKey
    """With the names of all sources of the set; a shard has objects of some of them."""
    shard: str | None
    """Such as ``2/8``; None for a whole set."""
    expected: tuple[str, ...]
    """Names of the sources of the shard, sorted; of all sources for a whole set."""
    objects: Mapping[str, ObjectRecord]
    """The objects of this archive, by source."""

    @property
    def is_partial(self) -> bool:
        """Whether sources of the shard, or of the set, have no object in it: the time was up before."""
        return len(self.objects) < len(self.expected)

    @property
    def key(self) -> str:
        """The key of the set: 64 hex digits."""
        return self.set_key.digest

    @property
    def totals(self) -> dict[str, float]:
        """What all objects cost together: bytes, each counted however often its content occurs, CPU seconds, MiB.

        ``peak_mib`` is the most that one compile needed, ``cached`` counts the objects that a compiler cache had.
        """
        entries = self.objects.values()
        return {
            "objects": len(entries),
            "size": sum(entry.size for entry in entries),
            "cpu_s": round(sum(entry.cpu_s for entry in entries), 3),
            "peak_mib": max((entry.peak_mib for entry in entries), default=0),
            "cached": sum(entry.cached for entry in entries),
        }

    @property
    def file_name(self) -> str:
        """Such as ``fa2.8.3-rocm6.4-gfx942-cxx11-0123456789abcdef.shard-2-of-8.partial.tar.zst``."""
        return (
            f"{self.set_id}-{self.key[:16]}{shard_suffix(self.shard)}{PARTIAL_SUFFIX * self.is_partial}{ARCHIVE_SUFFIX}"
        )

    def group_by_content(self) -> Iterator[tuple[ObjectRecord, ...]]:
        """The objects of each distinct content, in the order in which the archive has them."""
        entries = sorted(self.objects.values(), key=lambda entry: (entry.sha256, entry.source))
        for _, group in groupby(entries, key=lambda entry: entry.sha256):
            yield tuple(group)

    def to_bytes(self) -> bytes:
        """As it stands in the archive: the same objects give the same bytes."""
        objects = {source: asdict(entry) for source, entry in self.objects.items()}
        for costs in objects.values():
            del costs["source"]
        document = {
            "format": FORMAT,
            "set": self.set_id,
            "key": self.key,
            "shard": self.shard,
            "wanted": self.expected if self.shard else None,
            "totals": self.totals,
            "parts": self.set_key.parts,
            "sources": self.set_key.sources,
            "objects": objects,
        }
        return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def make_archive_manifest(
    key: SetKey, set_id: str, shard: str | None, entries: Iterable[ObjectRecord], wanted: Iterable[str]
) -> ArchiveManifest:
    """The manifest of these objects of a set, or of a shard of it with the sources `wanted`.

    Raises `InputError` for a name that cannot be, and `BuildError` for objects.
    """
    if not _SET_ID.fullmatch(set_id):
        raise InputError("not a name for a kernel set", ascii(set_id), "use letters, digits and . _ + -")
    objects = {entry.source: entry for entry in sorted(entries, key=lambda entry: entry.source)}
    sources = tuple(sorted(set(key.sources)))
    names = sources if shard is None else tuple(sorted(set(wanted)))
    manifest = ArchiveManifest(set_id, SetKey(key.parts, sources), shard, names, objects)
    try:
        _require_sound(manifest)
    except ValueError as error:
        raise BuildError("objects that cannot be packed", str(error), "remove them, and compile them again") from None
    return manifest


def parse_archive_manifest(data: bytes, place: str) -> ArchiveManifest:
    """A manifest from its JSON. Raises `InputError` with `place` if it is none, or its key is not that of its parts."""
    try:
        return _manifest(json.loads(data))
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        hint = "pack it again, by the same version of wheelfactory"
        raise InputError("damaged kernel manifest", f"{place}: {why}", hint) from None


def _manifest(document: Any) -> ArchiveManifest:
    """Raises `ValueError` at the first thing that is odd: whoever made it may have put in millions."""
    key = SetKey.from_document(document)
    if document.keys() != _NAMES:
        raise ValueError("it does not say what a manifest says, or more")
    if not _is_shallow(key.parts, _DEEPEST):
        raise ValueError("its parts are nested too deeply")
    if list(key.sources) != sorted(set(key.sources)):
        raise ValueError("its sources are not sorted, or one is there twice")
    set_id, shard = document["set"], document["shard"]
    if not isinstance(set_id, str) or not _SET_ID.fullmatch(set_id):
        raise ValueError("the name of its set cannot be one")
    if shard is not None and not (isinstance(shard, str) and str(Shard.parse(shard)) == shard):
        raise ValueError("its shard is not written such as 2/8")
    wanted = _wanted(document["wanted"], shard, key.sources)
    manifest = ArchiveManifest(set_id, key, shard, wanted, _objects(document["objects"], frozenset(wanted)))
    _require_sound(manifest)
    if document["totals"] != manifest.totals:
        raise ValueError("its totals are not those of its objects")
    return manifest


def _wanted(document: Any, shard: str | None, sources: tuple[str, ...]) -> tuple[str, ...]:
    if shard is None:
        if document is not None:
            raise ValueError("it is of a whole set, and names the sources of a shard")
        return sources
    known = frozenset(sources)
    if not isinstance(document, list) or not all(isinstance(name, str) and name in known for name in document):
        raise ValueError("it does not name the sources of its shard")
    if document != sorted(set(document)):
        raise ValueError("the sources of its shard are not sorted, or one is there twice")
    return tuple(document)


def _is_shallow(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(item, levels - 1) for item in items)


def _objects(document: Any, sources: frozenset[str]) -> dict[str, ObjectRecord]:
    if not isinstance(document, dict):
        raise ValueError("it has no objects by source")
    found: dict[str, ObjectRecord] = {}
    for source, costs in document.items():
        entry = ObjectRecord.from_document({**costs, "source": source}) if isinstance(costs, dict) else None
        if entry is None or source not in sources:
            raise ValueError(f"no object of the set: {source[:100]!a}")
        found[source] = entry
    return found


def _require_sound(manifest: ArchiveManifest) -> None:
    """Raise `ValueError` if an archive cannot have these objects."""
    for same in manifest.group_by_content():
        if len({entry.size for entry in same}) > 1:
            raise ValueError(f"one content has two sizes: {same[0].source}")
        if same[0].size > _LARGEST:
            raise ValueError(f"{same[0].source} has {same[0].size} bytes, more than {_LARGEST}")
