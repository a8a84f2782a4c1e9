"""A folder of what shards have made so far -> the archive of their whole set, or how far they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wheelfactory.core.errors import InputError, RunAgainError
from wheelfactory.kernels.archive import NotWholeError, check, find_archives, is_shard, join, read_manifest
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.earlier import partial_manifests
from wheelfactory.kernels.manifest import Manifest


def join_set(folder: Path, set_id: str, kernels: Path) -> Path:
    """Make the archive of a set of those of its shards in a folder, through the store below `kernels`; its path.

    If there are no shards but the archive of the whole set, as a set that was not cut leaves it, it is that one. Raises
    `RunAgainError` if shards are there in part only, `InputError` if there is nothing of the set, and whatever `join`
    raises.
    """
    archives = find_archives(folder, set_id)
    shards = [path for path in archives if is_shard(path)]
    if not shards and len(archives) == 1:
        check(archives[0])
        return archives[0]
    begun = tuple(partial_manifests(folder, set_id))
    if not shards and not begun:
        hint = f"compile them: wheelfactory kernels {set_id} --shard 1/N --dest {folder}"
        raise InputError("no shards to join", f"of {set_id} in {folder}", hint)
    if not shards:
        raise _not_whole_yet((), begun, folder)
    try:
        return join(shards, folder, kernels)
    except NotWholeError:
        whole = [read_manifest(path) for path in shards]
        there = {manifest.shard for manifest in whole}
        left = [manifest for manifest in begun if manifest.shard not in there and manifest.key == whole[0].key]
        if left:
            raise _not_whole_yet(whole, left, folder) from None
        raise


def _not_whole_yet(whole: Sequence[Manifest], begun: Sequence[Manifest], folder: Path) -> RunAgainError:
    progress = {manifest.shard or "1/1": manifest for manifest in begun}
    which = "; ".join(_far({manifest.shard for manifest in whole}, progress))
    hint = f"compile the rest by the same commands as before, with --dest {folder}, then join again"
    return RunAgainError("kernel set is not whole yet", which, hint)


def _far(there: set[str | None], progress: Mapping[str, Manifest]) -> Iterator[str]:
    """How far each shard is that is not there whole."""
    counts = sorted({Shard.parse(shard).count for shard in (*there, *progress) if shard})
    for shard in (str(Shard(index, count)) for count in counts for index in range(1, count + 1)):
        if shard in progress:
            manifest = progress[shard]
            yield f"shard {shard}: {len(manifest.objects)} of {len(manifest.wanted)} kernels"
        elif shard not in there:
            yield f"shard {shard}: none"
