"""Files: written so that a reader, or a run after a kill, sees the old or the new one and never half of one.

Also used beside the compiler, so it needs the standard library of Python 3.9 alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from wheelfactory.core.errors import FactoryError

_SCRATCH = ".scratch-"


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A place to write to that becomes `path` when the block ends well, and is removed when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch_dir(path.parent) as scratch:
        written = scratch / path.name
        yield written
        with written.open("rb") as file:
            os.fsync(file.fileno())
        written.replace(path)


def write_atomic(path: Path, data: bytes) -> None:
    """Make `path` hold `data`; a file that already does is left alone, its time included."""
    if path.is_file() and path.read_bytes() == data:
        return
    with atomic_path(path) as written:
        written.write_bytes(data)


def read_file(path: Path, refusal: FactoryError, most: int = -1) -> bytes:
    """The content of a file, or its first `most` bytes.

    If it cannot be read, raises `refusal` with the reason behind its `which`.
    """
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise type(refusal)(refusal.what, f"{refusal.which} ({error.strerror})", refusal.hint) from None


@contextlib.contextmanager
def scratch_dir(parent: Path) -> Iterator[Path]:
    """A folder of this process alone, removed at the end; what a killed run left is removed by `remove_scratch`."""
    parent.mkdir(parents=True, exist_ok=True)
    path, descriptor = _make_scratch(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _make_scratch(parent: Path) -> tuple[Path, int]:
    """A new folder and its open descriptor, locked: that says that someone is at work there, until the process ends."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.is_dir():
            return path, descriptor
        os.close(descriptor)  # another run's cleaning came between making and locking it


def remove_scratch(folder: Path) -> None:
    """Remove what killed runs left below `folder`; the scratch folders of running processes are left alone.

    Environments are not searched: pip fills them, and nothing of ours is below them.
    """
    for parent, names, _ in os.walk(folder):
        for name in [name for name in names if name.startswith(_SCRATCH)]:
            with contextlib.suppress(FactoryError), lock_folder(Path(parent, name)):
                shutil.rmtree(Path(parent, name), ignore_errors=True)
        names[:] = [name for name in names if not name.startswith((_SCRATCH, "env-", "rocm-"))]


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; the kernel lets go when the process ends, however it ends.

    Raises `FactoryError` if another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FactoryError("in use by another run", str(folder), "wait for it, or choose another folder") from None
        yield
    finally:
        os.close(descriptor)
