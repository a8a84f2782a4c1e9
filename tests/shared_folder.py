"""Folders shared by test processes: the first process creates them, the others wait."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from wheelfactory.core.files import scratch_dir
from wheelfactory.core.process import run


@contextmanager
def file_lock(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock `name` in a folder. The kernel releases the lock of a killed process."""
    locks = folder / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_once(base: Path, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder filled by `make`, once for all processes of a run; if `make` raises, the next one retries.

    `base` is the temporary folder of this process; pytest-xdist puts it into the folder of the run.
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


def share_triton_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs of the numeric gates keep compiled kernels in `folder`, where each has its own otherwise.

    Triton finds a kernel by its source, its arch and its options, so a changed kernel is compiled again.
    """

    def run_with_cache(command: Any, *, environ: Mapping[str, str], **options: Any) -> Any:
        return run(command, environ={**environ, "TRITON_CACHE_DIR": str(folder)}, **options)

    monkeypatch.setattr("wheelfactory.build.executor.run", run_with_cache)
