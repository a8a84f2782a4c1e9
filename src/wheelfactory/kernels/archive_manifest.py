"""The manifest of a kernel archive: its kernel set, its objects, how each was compiled and what it cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby

from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.strict import parse_record
from wheelfactory.kernels.compiler.costs import Shard
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey
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
    """The content of ``manifest.json`` in a kernel archive.

    Raises `ValueError` for anything inconsistent, at the first problem: a hostile manifest could have millions.
    """

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

    def __post_init__(self) -> None:
        sources = {*self.set_key.sources}
        if not _is_shallow(self.set_key.parts, _MAX_KEY_DEPTH):
            raise ValueError("its key parts are nested too deeply")
        if list(self.set_key.sources) != sorted(sources):
            raise ValueError("its sources are not sorted and unique")
        if not _SET_ID.fullmatch(self.set_id):
            raise ValueError(f"its kernel set id is invalid: {self.set_id[:100]}")
        if self.shard is not None and str(Shard.parse(self.shard)) != self.shard:
            raise ValueError("its shard is not of the form 2/8")
        expected = sources if self.shard is None else {*self.expected} & sources
        if list(self.expected) != sorted(expected):
            raise ValueError("its expected sources are not sorted and unique sources of the set or shard")
        for source, entry in self.objects.items():
            if entry.source != source or source not in expected:
                raise ValueError(f"an object is not of this set: {source[:100]}")
        self._require_packable()

    def _require_packable(self) -> None:
        for duplicates in self.group_by_content():
            if len({entry.size for entry in duplicates}) > 1:
                raise ValueError(f"two sizes for one sha256: {duplicates[0].source}")
            if duplicates[0].size > _MAX_OBJECT_BYTES:
                which = f"{duplicates[0].source} has {duplicates[0].size} bytes"
                raise ValueError(f"{which}, the limit is {_MAX_OBJECT_BYTES}")

    @property
    def is_partial(self) -> bool:
        """Whether objects are missing because the compile ran out of time."""
        return len(self.objects) < len(self.expected)

    @property
    def key(self) -> str:
        """The key of the set: 64 hex digits."""
        return self.set_key.digest

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
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode() + b"\n"


def make_archive_manifest(
    key: SetKey, set_id: str, shard: str | None, entries: Iterable[ObjectRecord], expected: Iterable[str]
) -> ArchiveManifest:
    """Make the manifest of these objects of a set, or of one shard with the sources `expected`.

    Raises `BuildError` if an archive cannot hold the objects.
    """
    objects = {entry.source: entry for entry in sorted(entries, key=lambda entry: entry.source)}
    sources = tuple(sorted(set(key.sources)))
    names = sources if shard is None else tuple(sorted(set(expected)))
    try:
        return ArchiveManifest(set_id, SetKey(key.parts, sources), shard, names, objects)
    except ValueError as error:
        hint = "remove them from the cache, and compile them again"
        raise BuildError("cannot pack objects", str(error), hint) from None


def parse_archive_manifest(data: bytes, place: str) -> ArchiveManifest:
    """Parse and verify the JSON of a manifest. Raises `InputError`, which names `place`, if it is invalid."""
    try:
        return parse_record(ArchiveManifest, data)
    except ValueError as error:
        hint = "pack it again with this version of wheelfactory"
        raise InputError("damaged kernel manifest", f"{place}: {error}", hint) from None


def _is_shallow(value: object, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(_is_shallow(item, levels - 1) for item in items)
