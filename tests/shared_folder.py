"""Things that take long to make and that several test processes need: one makes them, the others wait for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wheelfactory.core.files import scratch_dir


@contextmanager
def file_lock(folder: Path, name: str) -> Iterator[None]:
    """Hold `name` for this process, after those that hold it in the same folder; a killed one holds nothing."""
    turns = folder / "turns"
    turns.mkdir(parents=True, exist_ok=True)
    with (turns / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_once(base: Path, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` has filled, for all processes of a test run; if it raised, the next one tries again.

    `base` is the folder for temporary files of this process, which pytest-xdist puts into that of the run.
    """
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = common / name
    with file_lock(common, name):
        if not folder.exists():
            with scratch_dir(common) as scratch:
                made = scratch / name
                made.mkdir()
                make(made)
                made.rename(folder)
    return folder
