"""Compare device code byte for byte with the kernel set of the build record: that of archives, or of this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

from wheelfactory.kernels.archive import find_archives, read_archive_manifest
from wheelfactory.kernels.compiler.request import join_keys
from wheelfactory.kernels.compiler.store import ObjectRecord, SetKey, Store
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.verify.result import Finding
from wheelfactory.wheel.elf.offload import Bundle

Digests = Mapping[str, str]
"""The sha256 of the code object of each source."""

# parts of one arch and of host code; a cache has a few of each
_MAX_COMBINATIONS = 10_000


@dataclass(frozen=True)
class SetPart:
    """The objects of some kernels for one target."""

    key: SetKey
    read: Callable[[], Mapping[str, ObjectRecord]]
    """Returns the records of the objects that are there, by source."""


def parts_in_stores(kernels: Path) -> Iterator[SetPart]:
    """Yield what the folder of stores has."""
    for path in kernels.glob("*/set.json"):
        with suppress(OSError, ValueError, LookupError, TypeError):  # being written, or of another format
            key = SetKey.from_bytes(path.read_bytes())
            yield SetPart(key, Store(kernels, key).read_records)


def parts_in_archives(folder: Path, set_ids: Iterable[str]) -> Iterator[SetPart]:
    """Yield what the archives of these sets have, all shards of a set as one. Raises `InputError` for a damaged one."""
    for set_id in set_ids:
        shards: dict[str, SetKey] = {}
        objects: dict[str, dict[str, ObjectRecord]] = {}
        for manifest in map(read_archive_manifest, find_archives(folder, set_id)):
            shards[manifest.key] = manifest.set_key
            objects.setdefault(manifest.key, {}).update(manifest.objects)
        for key, found in objects.items():
            yield SetPart(shards[key], found.copy)


def find_kernel_set(parts: Iterable[SetPart], key: str, archs: Sequence[str]) -> Mapping[str, Digests] | None:
    """Return the digests of the kernel set of this key (`join_keys`), by arch; None unless the parts have all of it.

    Objects that were compiled as a whole, not by arch, are not found.
    """
    by_targets: dict[tuple[str, ...], list[SetPart]] = {}
    for part in parts:
        with suppress(LookupError, TypeError):  # not a key of ours
            by_targets.setdefault(tuple(part.key.parts["targets"]), []).append(part)
    choices = [by_targets.get((target,), []) for target in (*archs, HOST)]
    for chosen in islice(product(*choices), _MAX_COMBINATIONS):
        if join_keys(part.key.digest for part in chosen) == key:
            found = [part.read() for part in chosen[:-1]]
            is_complete = all(
                len(records) == len(part.key.sources) for records, part in zip(found, chosen, strict=False)
            )
            digests = ({name: entry.sha256 for name, entry in records.items()} for records in found)
            return dict(zip(archs, digests, strict=True)) if is_complete else None
    return None


def find_foreign_code(file: str, bundles: Sequence[Bundle], kernel_set: Mapping[str, Digests]) -> Iterator[Finding]:
    """Yield a finding for each arch in whose device code a code object of the kernel set is missing or changed.

    A wheel has more code than the set: the bindings' own kernels, which are compiled anew for each wheel.
    """
    remedy = "the wheel was not linked from its kernel set, or was changed since: build it again"
    for arch, digests in kernel_set.items():
        found = Counter(entry.sha256 for bundle in bundles for entry in bundle.entries if str(entry.target) == arch)
        if missing := Counter(digests.values()) - found:
            first = min(source for source, digest in digests.items() if digest in missing)
            expected = f"the code of all {len(digests)} kernel sources for {arch}, byte for byte as in the kernel set"
            what = f"{missing.total()} missing or changed, such as that of {first}"
            yield Finding(file=file, expected=expected, found=what, remedy=remedy)
