"""Compare device code byte for byte with the kernel set of the build record, from archives or from this machine."""

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
from wheelfactory.kernels.kernel_set import Proof, require_proof
from wheelfactory.verify.result import Finding
from wheelfactory.wheel.elf.offload import Bundle

# parts of one arch and of host code; a cache has a few of each
_MAX_COMBINATIONS = 10_000


@dataclass(frozen=True)
class SetPart:
    """The objects of some kernels for one target."""

    key: SetKey
    read: Callable[[], Mapping[str, ObjectRecord]]
    """Returns the records of the objects that are there, by source."""
    proof: Proof | None = None
    """Which of its kernels were executed; None in stores."""


def parts_in_stores(kernels: Path) -> Iterator[SetPart]:
    """Yield what the folder of stores has."""
    for path in kernels.glob("*/set.json"):
        with suppress(OSError, ValueError, LookupError, TypeError):  # being written, or of another format
            key = SetKey.from_bytes(path.read_bytes())
            yield SetPart(key, Store(kernels, key).read_records)


def parts_in_archives(folder: Path, set_ids: Iterable[str]) -> Iterator[SetPart]:
    """Yield what the archives of these sets have, all shards of a set as one.

    Raises `InputError` for a damaged archive, and as `require_proof` does for one with a proof.
    """
    for set_id in set_ids:
        shards: dict[str, SetKey] = {}
        objects: dict[str, dict[str, ObjectRecord]] = {}
        proofs: dict[str, Proof] = {}
        for manifest in map(read_archive_manifest, find_archives(folder, set_id)):
            shards[manifest.key] = manifest.set_key
            objects.setdefault(manifest.key, {}).update(manifest.objects)
            if manifest.proof:
                require_proof(set_id, manifest.set_key, manifest.proof)
                proofs[manifest.key] = manifest.proof
        for key, found in objects.items():
            yield SetPart(shards[key], found.copy, proofs.get(key))


def find_kernel_set(parts: Iterable[SetPart], key: str, archs: Sequence[str]) -> Mapping[str, SetPart] | None:
    """Return the parts of the kernel set of this key (`join_keys`), by arch; None unless they have all of it.

    Objects that were compiled as a whole, not by arch, are not found.
    """
    by_targets: dict[tuple[str, ...], list[SetPart]] = {}
    for part in parts:
        with suppress(LookupError, TypeError):  # not a key of ours
            by_targets.setdefault(tuple(part.key.parts["targets"]), []).append(part)
    choices = [by_targets.get((target,), []) for target in (*archs, HOST)]
    for chosen in islice(product(*choices), _MAX_COMBINATIONS):
        if join_keys(part.key.digest for part in chosen) == key:
            by_arch = dict(zip(archs, chosen, strict=False))
            return by_arch if all(len(part.read()) == len(part.key.sources) for part in by_arch.values()) else None
    return None


def find_foreign_code(file: str, bundles: Sequence[Bundle], kernel_set: Mapping[str, SetPart]) -> Iterator[Finding]:
    """Yield a finding for each arch in whose device code a code object of the kernel set is missing or changed.

    A wheel has more code than the set: the bindings' own kernels, which are compiled anew for each wheel.
    """
    remedy = "the wheel was not linked from its kernel set, or was changed since: build it again"
    for arch, part in kernel_set.items():
        digests = {name: entry.sha256 for name, entry in part.read().items()}
        found = Counter(entry.sha256 for bundle in bundles for entry in bundle.entries if str(entry.target) == arch)
        if missing := Counter(digests.values()) - found:
            first = min(source for source, digest in digests.items() if digest in missing)
            expected = f"the code of all {len(digests)} kernel sources for {arch}, byte for byte as in the kernel set"
            what = f"{missing.total()} missing or changed, such as that of {first}"
            yield Finding(file, expected, what, remedy)
