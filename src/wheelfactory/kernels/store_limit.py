"""Keep the store of compiled kernels within a size, by removing the sets that were not used for the longest time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from wheelfactory.core.files import is_locked, remove_scratch, running_since, scratch_dir
from wheelfactory.core.progress import logger
from wheelfactory.kernels.compiler.store import last_used, lock_sets

_GB = 1000**3


@dataclass(frozen=True)
class _StoredSet:
    folder: Path
    used: int
    size: int


@contextmanager
def keep_used_sets(kernels: Path) -> Iterator[None]:
    """Let no `limit_store`, of any process, remove a set of the store `kernels` that is used during the block."""
    # `limit_store` keeps sets used since the oldest scratch folder (`running_since`), which is this one or older
    with scratch_dir(kernels):
        yield


def limit_store(kernels: Path, max_bytes: int) -> None:
    """Remove sets from the store `kernels` until the objects of the remaining sets have at most `max_bytes`.

    The set that was not used for the longest time goes first. Sets in use stay, even if they have more bytes. Logs what
    is removed.
    """
    remove_scratch(kernels)  # leftovers of killed runs, among them sets that a killed run was removing
    with scratch_dir(kernels) as trash:
        removed, total = _move_sets(kernels, trash, max_bytes)
    for item in removed:
        day = datetime.fromtimestamp(item.used / 1e9, timezone.utc).date()
        logger.info("removed kernels last used on %s: %s, %.2f GB freed", day, item.folder, item.size / _GB)
    if total > max_bytes:
        text = "the kernels in use have %.2f GB, more than the limit of %.2f GB: keeping them"
        logger.warning(text, total / _GB, max_bytes / _GB)


def _move_sets(kernels: Path, trash: Path, max_bytes: int) -> tuple[list[_StoredSet], int]:
    """Move sets to `trash`; return them, and the bytes of the remaining sets."""
    removed = []
    with lock_sets(kernels):  # so no command begins to use a set that was found to be unused
        found = {folder: used for folder in kernels.iterdir() if (used := last_used(folder)) is not None}
        sizes = {folder: sum(path.stat().st_size for path in folder.glob("objects/*")) for folder in found}
        sets = [_StoredSet(folder, used, sizes[folder]) for folder, used in found.items()]
        total, started = sum(item.size for item in sets), running_since(kernels)
        for item in sorted(sets, key=lambda item: item.used):
            # a compile in a container can outlive its command, but it keeps its locks
            if total <= max_bytes or item.used >= started or any(map(is_locked, item.folder.glob("lock*"))):
                continue
            item.folder.rename(trash / item.folder.name)  # at once, so nobody sees half of a set
            removed.append(item)
            total -= item.size
    return removed, total
