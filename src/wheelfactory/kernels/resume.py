"""Resume from the archives of earlier runs in a folder: reuse complete ones, unpack partial ones, merge shards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from wheelfactory.core.errors import BuildError, InputError, RunAgainError
from wheelfactory.core.progress import logger
from wheelfactory.kernels.archive import (
    IncompleteSetError,
    find_archives,
    is_shard_archive,
    pack_archive,
    read_archive_manifest,
    require_complete,
    shorten_names,
    unpack_archive,
    verify_archive,
)
from wheelfactory.kernels.archive_manifest import ARCHIVE_SUFFIX, PARTIAL_SUFFIX, ArchiveManifest, shard_suffix
from wheelfactory.kernels.compiler.key import diff_key_parts
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.compiler.store import SetKey, Store


def find_complete_archive(folder: Path, set_id: str, shard: str | None, kernels: Path) -> Path | None:
    """Find the undamaged archive of a shard (``2/8``), or of a whole set, in a folder.

    Returns None if archives of several keys exist. A damaged archive is removed with a warning; its intact objects are
    kept in the store of its key below `kernels`.
    """
    found = [path for path in _of_shard(find_archives(folder, set_id), set_id, shard) if _read_valid(path, kernels)]
    if len(found) > 1:
        # only a run of setup.py computes the right key
        logger.info("%d archives of different keys in %s: asking the compiler which one fits", len(found), folder)
        return None
    return found[0] if found else None


def unpack_partial_archives(folder: Path, set_id: str, shard: str | None, kernels: Path) -> tuple[ArchiveManifest, ...]:
    """Unpack the partial archives of a shard into the stores of their keys below `kernels`; return their manifests.

    A damaged archive is removed with a warning, after its good objects are unpacked. Raises `FactoryError` if the
    objects cannot be written.
    """
    unpacked = []
    for path in _of_shard(find_archives(folder, set_id, partial=True), set_id, shard):
        manifest = _read_valid(path, kernels)
        if manifest:
            unpack_archive(path, kernels)
            logger.info("%d of %d kernels are in %s", len(manifest.objects), len(manifest.expected), path.name)
            unpacked.append(manifest)
    return tuple(unpacked)


def log_ignored_archives(unpacked: Collection[ArchiveManifest], key: SetKey) -> None:
    """Log a warning for each unpacked archive with a different key, with the differences."""
    for manifest in unpacked:
        if manifest.key != key.digest:
            why = "; ".join(diff_key_parts(key.parts, manifest.set_key.parts))
            logger.warning("ignored %s, its key differs: %s", manifest.file_name, why)


def remove_partial_archive(whole: Path) -> None:
    """Remove the partial archive that a complete archive supersedes."""
    whole.with_name(whole.name.removesuffix(ARCHIVE_SUFFIX) + PARTIAL_SUFFIX + ARCHIVE_SUFFIX).unlink(missing_ok=True)


def merge_set(folder: Path, set_id: str, kernels: Path) -> Path:
    """Merge the shards of a set in a folder into one archive, through the store below `kernels`, and return its path.

    If there are no shards but one archive of the whole set, verify and return that one. Raises `RunAgainError` if some
    shards are only partial, `InputError` if the folder has no archive of the set, and the errors of `merge_shards`.
    """
    archives = find_archives(folder, set_id)
    shards = [path for path in archives if is_shard_archive(path)]
    if not shards and len(archives) == 1:
        verify_archive(archives[0])
        return archives[0]
    begun = []
    for path in find_archives(folder, set_id, partial=True):
        try:
            begun.append(read_archive_manifest(path))
        except InputError as error:
            logger.warning("%s", error)
    if not shards and not begun:
        hint = f"compile them: wheelfactory kernels {set_id} --shard 1/N --dest {folder}"
        raise InputError("no shards to merge", f"{set_id} in {folder}", hint)
    whole = [read_archive_manifest(path) for path in shards]
    complete_shards = {manifest.shard for manifest in whole}
    try:
        if shards:
            return merge_shards(shards, folder, kernels)
    except IncompleteSetError:
        begun = [
            manifest for manifest in begun if manifest.shard not in complete_shards and manifest.key == whole[0].key
        ]
        if not begun:
            raise
    which = "; ".join(_missing_shards(complete_shards, begun))
    hint = f"run the compile commands of these shards again with --dest {folder}, then merge again"
    raise RunAgainError("incomplete kernel set", which, hint)


def _missing_shards(complete_shards: Collection[str | None], begun: Iterable[ArchiveManifest]) -> Iterator[str]:
    """Describe the progress of each incomplete shard."""
    progress = {manifest.shard or "1/1": manifest for manifest in begun}
    for shard in _every_shard([*complete_shards, *progress]):
        if shard in progress:
            manifest = progress[shard]
            yield f"shard {shard}: {len(manifest.objects)} of {len(manifest.expected)} kernels"
        elif shard not in complete_shards:
            yield f"shard {shard}: no kernel"


def merge_shards(paths: Sequence[Path], folder: Path, kernels: Path) -> Path:
    """Merge at least one shard of a set into one archive, through the store below `kernels`, and return its path.

    Raises `InputError` if the archives are of different sets or one is damaged, `IncompleteSetError` if a source has no
    object, and `BuildError` if its only object is damaged.
    """
    manifests = [read_archive_manifest(path) for path in paths]
    first = manifests[0]
    for path, manifest in zip(paths, manifests, strict=True):
        if (manifest.key, manifest.set_id) != (first.key, first.set_id):
            one, two = ({"set": found.set_id, **found.set_key.parts} for found in (first, manifest))
            which = f"{paths[0].name} and {path.name} differ in {'; '.join(diff_key_parts(one, two))}"
            hint = "merge only shards of one compiler and one set of flags"
            raise InputError("archives of different kernel sets", which, hint)
    store = Store(kernels, first.set_key)
    have = {*store.read_records(), *(source for manifest in manifests for source in manifest.objects)}
    complete_shards = {manifest.shard for manifest in manifests}
    absent = [shard for shard in _every_shard(complete_shards) if shard not in complete_shards]
    require_complete(store.key.sources, have, f"; no archive of shard {shorten_names(absent)}" if absent else "")
    damaged = {source: path for path in paths for source in unpack_archive(path, kernels).damaged}
    lost = sorted(damaged.keys() - store.read_records().keys())
    if lost:
        hint = "compile them again, or download the archive again"
        raise BuildError("damaged objects", f"{len(lost)} in {damaged[lost[0]]}: {shorten_names(lost)}", hint)
    return pack_archive(store, first.set_id, folder, None)


def _every_shard(known: Iterable[str | None]) -> Iterator[str]:
    """Yield all shards of a set that was split like these shards."""
    for count in sorted({Shard.parse(shard).count for shard in known if shard}):
        yield from (str(Shard(index, count)) for index in range(1, count + 1))


def _of_shard(paths: Collection[Path], set_id: str, shard: str | None) -> Iterator[Path]:
    begin = len(f"{set_id}-") + 16  # digits of the key
    for path in paths:
        if path.name[begin:].removesuffix(ARCHIVE_SUFFIX).removesuffix(PARTIAL_SUFFIX) == shard_suffix(shard):
            yield path


def _read_valid(path: Path, kernels: Path) -> ArchiveManifest | None:
    """Verify an archive and its name. If it is damaged, unpack its good objects, remove it, and return None."""
    try:
        manifest = verify_archive(path)
        if path.name != manifest.file_name:
            which = f"{path} should be {manifest.file_name}"
            raise InputError("misnamed kernel archive", which, "compile it again")
    except InputError as error:
        logger.warning("%s; removing it; its intact objects are kept", error)
        with suppress(InputError):
            unpack_archive(path, kernels)
        path.unlink()
        return None
    return manifest
