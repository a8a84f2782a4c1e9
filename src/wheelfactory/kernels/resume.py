"""What earlier runs, here or elsewhere, left in a folder of archives: whole sets and shards, or parts to go on from."""

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
    """The archive of a shard (``2/8``), or of a whole set, if it is in a folder and nothing of it is damaged.

    None if there are several, made by different compilers: only setup.py tells which of them is wanted. A damaged one
    is told and removed, after what is sound of it was put into the store of its key below `kernels`.
    """
    found = [path for path in _of_shard(find_archives(folder, set_id), set_id, shard) if _sound(path, kernels)]
    if len(found) > 1:
        logger.info("%d archives of different keys in %s: looking at the compiler", len(found), folder)
        return None
    return found[0] if found else None


def unpack_partial_archives(folder: Path, set_id: str, shard: str | None, kernels: Path) -> tuple[ArchiveManifest, ...]:
    """Put what the partial archives of a shard have into the stores of their keys below `kernels`; what they say.

    A damaged one is told and removed; what is sound of it is taken over, too. Raises `FactoryError` if there is no
    room.
    """
    taken = []
    for path in _of_shard(find_archives(folder, set_id, partial=True), set_id, shard):
        manifest = _sound(path, kernels)
        if manifest:
            unpack_archive(path, kernels)
            logger.info("%d of %d kernels are in %s", len(manifest.objects), len(manifest.expected), path.name)
            taken.append(manifest)
    return tuple(taken)


def log_ignored_archives(taken: Collection[ArchiveManifest], key: SetKey) -> None:
    """Say which of the partial archives that were taken over are of no use for the set with this key, and why."""
    for manifest in taken:
        if manifest.key != key.digest:
            why = "; ".join(diff_key_parts(key.parts, manifest.set_key.parts))
            logger.warning("%s is of another key and ignored: %s", manifest.file_name, why)


def remove_partial_archive(whole: Path) -> None:
    """Remove the partial archive of the key and shard of a whole one, which has all that was in it."""
    whole.with_name(whole.name.removesuffix(ARCHIVE_SUFFIX) + PARTIAL_SUFFIX + ARCHIVE_SUFFIX).unlink(missing_ok=True)


def merge_set(folder: Path, set_id: str, kernels: Path) -> Path:
    """Make the archive of a set of those of its shards in a folder, through the store below `kernels`; its path.

    If there are no shards but the archive of the whole set, as a set that was not cut leaves it, it is that one. Raises
    `RunAgainError` if shards are there in part only, `InputError` if there is nothing of the set, and whatever `join`
    raises.
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
        raise InputError("no shards to join", f"of {set_id} in {folder}", hint)
    whole = [read_archive_manifest(path) for path in shards]
    there = {manifest.shard for manifest in whole}
    try:
        if shards:
            return merge_shards(shards, folder, kernels)
    except IncompleteSetError:
        begun = [manifest for manifest in begun if manifest.shard not in there and manifest.key == whole[0].key]
        if not begun:
            raise
    which = "; ".join(_far(there, begun))
    hint = f"compile the rest by the same commands as before, with --dest {folder}, then join again"
    raise RunAgainError("kernel set is not whole yet", which, hint)


def _far(there: Collection[str | None], begun: Iterable[ArchiveManifest]) -> Iterator[str]:
    """How far each shard is that is not there whole."""
    progress = {manifest.shard or "1/1": manifest for manifest in begun}
    for shard in _every_shard([*there, *progress]):
        if shard in progress:
            manifest = progress[shard]
            yield f"shard {shard}: {len(manifest.objects)} of {len(manifest.expected)} kernels"
        elif shard not in there:
            yield f"shard {shard}: none"


def merge_shards(paths: Sequence[Path], folder: Path, kernels: Path) -> Path:
    """Make the archive of a set of those of its shards, one at least, through the store below `kernels`; its path.

    Raises `InputError` if the archives are not of one set, or one of them is damaged, `IncompleteSetError` if a source has
    no object in any, and `BuildError` if that is damaged.
    """
    manifests = [read_archive_manifest(path) for path in paths]
    first = manifests[0]
    for path, manifest in zip(paths, manifests, strict=True):
        if (manifest.key, manifest.set_id) != (first.key, first.set_id):
            one, two = ({"set": found.set_id, **found.set_key.parts} for found in (first, manifest))
            which = f"{paths[0].name} and {path.name} differ in {'; '.join(diff_key_parts(one, two))}"
            hint = "join those of one compiler and its flags"
            raise InputError("archives of different kernel sets", which, hint)
    store = Store(kernels, first.set_key)
    have = {*store.read_records(), *(source for manifest in manifests for source in manifest.objects)}
    there = {manifest.shard for manifest in manifests}
    absent = [shard for shard in _every_shard(there) if shard not in there]
    require_complete(store.key.sources, have, f"; no archive of shard {shorten_names(absent)}" if absent else "")
    damaged = {source: path for path in paths for source in unpack_archive(path, kernels).damaged}
    lost = sorted(damaged.keys() - store.read_records().keys())
    if lost:
        hint = "compile them again, or fetch the archive again"
        raise BuildError("damaged objects", f"{len(lost)} in {damaged[lost[0]]}: {shorten_names(lost)}", hint)
    return pack_archive(store, first.set_id, folder, None)


def _every_shard(known: Iterable[str | None]) -> Iterator[str]:
    """All shards of the sets that these were cut from."""
    for count in sorted({Shard.parse(shard).count for shard in known if shard}):
        yield from (str(Shard(index, count)) for index in range(1, count + 1))


def _of_shard(paths: Collection[Path], set_id: str, shard: str | None) -> Iterator[Path]:
    begin = len(f"{set_id}-") + 16  # digits of the key
    for path in paths:
        if path.name[begin:].removesuffix(ARCHIVE_SUFFIX).removesuffix(PARTIAL_SUFFIX) == shard_suffix(shard):
            yield path


def _sound(path: Path, kernels: Path) -> ArchiveManifest | None:
    """What an archive says, if nothing of it is damaged and it is what its name says; else it is there no more."""
    try:
        manifest = verify_archive(path)
        if path.name != manifest.file_name:
            which = f"{path} says that it is {manifest.file_name}"
            raise InputError("kernel archive under another name", which, "compile it again")
    except InputError as error:
        logger.warning("%s; what is sound of it is taken over, and it is removed", error)
        with suppress(InputError):
            unpack_archive(path, kernels)
        path.unlink()
        return None
    return manifest
