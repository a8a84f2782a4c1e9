"""Take over what earlier runs left in a folder of archives: what a store has is not compiled again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from wheelfactory.core.errors import InputError, RunAgainError
from wheelfactory.core.progress import logger
from wheelfactory.kernels.archive import find_archives, pack_archive, require_complete, unpack_archive
from wheelfactory.kernels.archive_format import ArchiveManifest
from wheelfactory.kernels.compiler.costs import Shard
from wheelfactory.kernels.compiler.key import diff_key_parts
from wheelfactory.kernels.compiler.store import SetKey, Store
from wheelfactory.kernels.proof import proof_path, read_proof


def unpack_archives(folder: Path, set_id: str, kernels: Path) -> tuple[ArchiveManifest, ...]:
    """Unpack the archives of a set in a folder into the stores of their keys below `kernels`; return their manifests.

    Logs a warning for a damaged or misnamed archive. A manifest leaves out damaged objects; that of a truncated or
    misnamed archive is not returned, but its good objects are in the store. Raises `FactoryError` if the objects cannot
    be written.
    """
    unpacked = []
    for path in find_archives(folder, set_id):
        try:
            done = unpack_archive(path, kernels)
            if path.name != done.file_name:
                which = f"{path} should be {done.file_name}"
                raise InputError("misnamed kernel archive", which, "remove it")
        except InputError as error:
            logger.warning("%s; its good objects are used", error)
            continue
        logger.info("%d of %d kernels are in %s", len(done.objects), len(done.expected), path.name)
        unpacked.append(done)
    return tuple(unpacked)


def log_ignored_archives(unpacked: Iterable[ArchiveManifest], key: SetKey) -> None:
    """Log a warning for each unpacked archive with a different key, with the differences."""
    for manifest in unpacked:
        if manifest.key != key.digest:
            why = "; ".join(diff_key_parts(key.parts, manifest.set_key.parts))
            logger.warning("ignored %s, its key differs: %s", manifest.file_name, why)


def merge_set(folder: Path, set_id: str, kernels: Path) -> Path:
    """Merge the archives of a set in a folder into one, through the stores below `kernels`, and return its path.

    A proof of the set in the folder becomes part of the archive. An undamaged archive of the whole set is returned as
    it is, unless there is a new proof. Raises `InputError` if the folder has no archive of the set, those of several
    compilers, or a damaged proof; if objects are missing, `RunAgainError` if a shard has begun, otherwise
    `IncompleteSetError`.
    """
    unpacked = unpack_archives(folder, set_id, kernels)
    if not unpacked:
        hint = f"compile them: wheelfactory kernels {set_id} --shard 1/N --dest {folder}"
        raise InputError("no archives to merge", f"{set_id} in {folder}", hint)
    stores = {manifest.key: Store(kernels, manifest.set_key) for manifest in unpacked}
    complete = [store for store in stores.values() if store.read_records().keys() >= {*store.key.sources}]
    begun, progress = any(manifest.is_partial for manifest in unpacked), _best_of_each_shard(unpacked)
    if len(stores) > 1 and len(complete) != 1 and (complete or not begun):
        first, other = (next(item for item in unpacked if item.key == key) for key in list(stores)[:2])
        why = "; ".join(diff_key_parts(first.set_key.parts, other.set_key.parts))
        hint = "keep only the archives of one compiler and one set of flags in the folder"
        which = f"{first.file_name} and {other.file_name} differ in {why}"
        raise InputError("archives of different compilers", which, hint)
    if begun and not complete:
        hint = f"run the compile commands of these shards again with --dest {folder}, then merge again"
        raise RunAgainError("incomplete kernel set", "; ".join(_describe_progress(progress)), hint)
    (store,) = complete or stores.values()
    absent = ", ".join(shard for shard in _every_shard(progress) if shard not in progress)
    require_complete(store.key.sources, store.read_records(), f"; no archive of shard {absent}" if absent else "")
    log_ignored_archives(unpacked, store.key)
    whole = [item for item in unpacked if (item.key, item.shard, item.is_partial) == (store.key.digest, None, False)]
    beside = proof_path(folder, set_id, store.key.digest)
    proof = read_proof(beside) if beside.is_file() else None
    if whole and (proof is None or proof == whole[0].proof):
        return folder / whole[0].file_name
    return pack_archive(store, set_id, folder, None, proof=proof)


def _best_of_each_shard(unpacked: Sequence[ArchiveManifest]) -> dict[str, ArchiveManifest]:
    """Return for each shard the archive with most objects; a whole set counts as shard ``1/1``."""
    return {item.shard or "1/1": item for item in sorted(unpacked, key=lambda item: len(item.objects))}


def _describe_progress(progress: Mapping[str, ArchiveManifest]) -> Iterator[str]:
    """Describe each incomplete shard."""
    for shard in _every_shard(progress):
        if shard not in progress:
            yield f"shard {shard}: no kernel"
        elif progress[shard].is_partial:
            yield f"shard {shard}: {len(progress[shard].objects)} of {len(progress[shard].expected)} kernels"


def _every_shard(known: Iterable[str]) -> Iterator[str]:
    """Yield all shards of a set that was split like these shards."""
    for count in sorted({Shard.parse(shard).count for shard in known}):
        yield from Shard.names(count)
