"""Files: digests, atomic writes, scratch folders, locks, and those of the project. No reader sees half a file.

Also runs inside the build container, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from wheelfactory.core.errors import FactoryError, VerificationError


def file_sha256(path: Path) -> str:
    """Compute the sha256 of a file in hex. Raises `OSError`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):  # in chunks: an image or an archive can be larger than memory
            digest.update(chunk)
    return digest.hexdigest()


def files_sha256(files: Iterable[tuple[str, bytes]]) -> str:
    """Compute one sha256 over the names and contents of files, in this order, in hex."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def folder_sha256(folder: Path) -> str:
    """Compute one sha256 over the paths and contents of the files below a folder; empty if there are none.

    Hidden files do not count, as in an artifact of actions/upload-artifact.
    """
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    lines = [f"{file_sha256(paths[name])}  {name}\n" for name in sorted(paths) if "/." not in f"/{name}"]
    return hashlib.sha256("".join(lines).encode()).hexdigest() if lines else ""


def content_key(content: str | bytes) -> str:
    """Compute a cache key: the first 16 hex digits of the sha256 of the inputs."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def require_sealed(artifact: str, sha256: str, folder: Path) -> None:
    """Raise `VerificationError` unless the folder of an artifact has the digest that the job that made it named."""
    found = folder_sha256(folder)
    if found != sha256:
        which = f"artifact {artifact} has {found or 'no file'}, its job made {sha256 or 'none'}"
        hint = "re-run all jobs; if this repeats, find the job that replaced the artifact, and why"
        raise VerificationError("not the artifact that its job made", which, hint)


_SCRATCH = ".scratch-"


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a scratch path; move the file there to `path` if the block succeeds, remove it otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with scratch_dir(path.parent) as scratch:
        written = scratch / path.name
        try:
            yield written
            with written.open("rb") as file:
                # sync before the rename, or a power cut could leave an empty file at `path`
                os.fsync(file.fileno())
            written.replace(path)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # a copy names the file that it reads, a write none
                error.filename, error.filename2 = str(path), None
            raise


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path`, unless the file has that content: then it keeps its modification time."""
    if path.is_file() and path.read_bytes() == data:
        return
    with atomic_path(path) as written:
        written.write_bytes(data)


def write_launcher(path: Path, command: Iterable[object]) -> None:
    """Write a program that runs a command, with the arguments that it gets itself at the end."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def read_file(path: Path, template: FactoryError, max_bytes: int = -1) -> bytes:
    """Read a file, or its first `max_bytes` bytes.

    Raises a copy of `template`, with the OS error appended to its subject (`which`), if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(max_bytes)
    except OSError as error:
        raise type(template)(template.what, f"{template.which} ({error.strerror})", template.hint) from None


@contextlib.contextmanager
def scratch_dir(parent: Path) -> Iterator[Path]:
    """Yield a new folder for this process alone; `remove_scratch` deletes the ones that a killed run left."""
    parent.mkdir(parents=True, exist_ok=True)
    path, descriptor = _make_scratch(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _make_scratch(parent: Path) -> tuple[Path, int]:
    """Create a folder and lock it; the lock, held by the descriptor, marks it as in use until the process ends."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.is_dir():
            return path, descriptor
        os.close(descriptor)  # another run's `remove_scratch` deleted it before it was locked


def remove_scratch(folder: Path) -> None:
    """Delete the scratch folders that killed runs left below `folder`; folders of running processes stay."""
    for parent, names, _ in os.walk(folder):
        for name in [name for name in names if name.startswith(_SCRATCH)]:
            with contextlib.suppress(FactoryError), lock_folder(Path(parent, name)):
                shutil.rmtree(Path(parent, name), ignore_errors=True)
        # installed environments have 100,000 files and never a scratch folder
        names[:] = [name for name in names if not name.startswith((_SCRATCH, "env-", "rocm-"))]


def running_since(folder: Path) -> int:
    """Return the least modification time of the scratch folders in `folder` that running processes use; now if none.

    In nanoseconds since 1970. A scratch folder into which nothing was written has the time at which it was created.
    """
    times = [time.time_ns()]
    for path in folder.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(FileNotFoundError):  # its process ended
            times += [path.stat().st_mtime_ns] * is_locked(path)
    return min(times)


def is_locked(path: Path) -> bool:
    """Whether a process has locked a file or folder. Raises `FileNotFoundError` if it is missing."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # shared, so that two processes that look do not take each other for the owner
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def lock_folder(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock `folder` for this process; with `wait`, after any other process has released it.

    Raises `FactoryError` if another process holds the lock, without `wait`.
    """

    def refuse() -> None:
        if not wait:
            raise FactoryError("in use by another run", str(folder), "wait for it, or choose another folder")

    folder.mkdir(parents=True, exist_ok=True)
    with _flock(os.open(folder, os.O_RDONLY), refuse):
        yield


@contextlib.contextmanager
def wait_for_lock(path: Path, tell: Callable[[], None]) -> Iterator[None]:
    """Lock the file at `path`, which is created; call `tell` before waiting for another process."""
    with _flock(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), tell):
        yield


@contextlib.contextmanager
def _flock(descriptor: int, when_busy: Callable[[], None]) -> Iterator[None]:
    """Lock an open file or folder, and close it afterwards. If it is locked, call `when_busy`, then wait."""
    # flock, not the existence of a file: the kernel releases it however the process ends
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            when_busy()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


PACKAGE_DIR = Path(__file__).resolve().parents[1]
"""The package folder; programs in a container import modules from it."""

_DATA = PACKAGE_DIR / "data"
ROOT = _DATA if _DATA.is_dir() else PACKAGE_DIR.parents[1]
"""The folder of the files below; pyproject.toml gives an installation the layout of a checkout."""

MATRIX = ROOT / "matrix.yaml"
BUILD_SCRIPT = ROOT / "build_rocm.sh"
"""The script that runs upstream's setup.py, on the host and in a container."""
TOOLCHAIN_PROBE = ROOT / "scripts/probe_toolchain.py"
"""Reports the torch and the compiler of the Python that runs it."""
DOCKER = ROOT / "docker"
"""The Dockerfile template of the build images."""
FALLBACK_SOURCES = ROOT / "packages/flash_attention_amd"
"""The sources of flash-attention-amd, which every release carries beside flash-attn."""
FLASH_ATTN_FALLBACK_SOURCES = ROOT / "packages/flash_attn_fallback"
"""The sources of the package named flash-attn that re-exports it."""


def factory_version() -> str:
    """The version of the installed distribution; in a checkout the version in pyproject.toml."""
    if _DATA.is_dir():
        from importlib.metadata import version  # imports the e-mail package: a quarter of each start

        return version("wheelfactory")
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("version = ")).split('"')[1]
