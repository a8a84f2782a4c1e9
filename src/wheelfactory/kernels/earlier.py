"""What earlier runs, here or elsewhere, left of a shard in a folder of archives: all of it, or a part to go on from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from wheelfactory.core.errors import InputError
from wheelfactory.core.progress import logger
from wheelfactory.kernels.archive import check, find_archives, read_manifest, unpack
from wheelfactory.kernels.compiler.key import differences
from wheelfactory.kernels.compiler.store import SetKey
from wheelfactory.kernels.manifest import PARTIAL, SUFFIX, Manifest, shard_suffix


def whole_archive(folder: Path, set_id: str, shard: str | None, kernels: Path) -> Path | None:
    """The archive of a shard (``2/8``), or of a whole set, if it is in a folder and nothing of it is damaged.

    None if there are several, made by different compilers: only setup.py tells which of them is wanted. A damaged one
    is told and removed, after what is sound of it was put into the store of its key below `kernels`.
    """
    found = [path for path in _of_shard(find_archives(folder, set_id), set_id, shard) if _sound(path, kernels)]
    if len(found) > 1:
        logger.info("%d archives of different keys in %s: looking at the compiler", len(found), folder)
        return None
    return found[0] if found else None


def take_over(folder: Path, set_id: str, shard: str | None, kernels: Path) -> tuple[Manifest, ...]:
    """Put what the partial archives of a shard have into the stores of their keys below `kernels`; what they say.

    A damaged one is told and removed; what is sound of it is taken over, too. Raises `FactoryError` if there is no
    room.
    """
    taken = []
    for path in _of_shard(find_archives(folder, set_id, partial=True), set_id, shard):
        manifest = _sound(path, kernels)
        if manifest:
            unpack(path, kernels)
            logger.info("%d of %d kernels are in %s", len(manifest.objects), len(manifest.wanted), path.name)
            taken.append(manifest)
    return tuple(taken)


def tell_ignored(taken: Collection[Manifest], key: SetKey) -> None:
    """Say which of the partial archives that were taken over are of no use for the set with this key, and why."""
    for manifest in taken:
        if manifest.key != key.digest:
            why = "; ".join(differences(key.parts, manifest.parts))
            logger.warning("%s is of another key and ignored: %s", manifest.file_name, why)


def remove_partial(whole: Path) -> None:
    """Remove the partial archive of the key and shard of a whole one, which has all that was in it."""
    whole.with_name(whole.name.removesuffix(SUFFIX) + PARTIAL + SUFFIX).unlink(missing_ok=True)


def partial_manifests(folder: Path, set_id: str) -> Iterator[Manifest]:
    """What the partial archives of a set in a folder say; one that is damaged is told and left out."""
    for path in find_archives(folder, set_id, partial=True):
        try:
            yield read_manifest(path)
        except InputError as error:
            logger.warning("%s", error)


def _of_shard(paths: Collection[Path], set_id: str, shard: str | None) -> Iterator[Path]:
    begin = len(f"{set_id}-") + 16  # digits of the key
    for path in paths:
        if path.name[begin:].removesuffix(SUFFIX).removesuffix(PARTIAL) == shard_suffix(shard):
            yield path


def _sound(path: Path, kernels: Path) -> Manifest | None:
    """What an archive says, if nothing of it is damaged and it is what its name says; else it is there no more."""
    try:
        manifest = check(path)
        if path.name != manifest.file_name:
            raise InputError(
                "kernel archive under another name", f"{path} says that it is {manifest.file_name}", "compile it again"
            )
    except InputError as error:
        logger.warning("%s; what is sound of it is taken over, and it is removed", error)
        with suppress(InputError):
            unpack(path, kernels)
        path.unlink()
        return None
    return manifest
