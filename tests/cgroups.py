"""Run commands under a memory limit that the kernel enforces: a control group (version 1 or 2) without swap.

The page cache of their files counts too, but the kernel frees it before it kills a process. So `peak_mib` can reach the
limit although the programs needed less; `held_mib` excludes the page cache.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Names:
    """The files of a version of control groups."""

    limit: str
    swap: str
    peak: str
    events: str
    """The file with the line ``oom_kill COUNT``."""
    held: str
    """The line of ``memory.stat`` that counts bytes outside the page cache."""


V1 = Names(
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.max_usage_in_bytes",
    "memory.oom_control",
    "total_rss",
)
V2 = Names("memory.max", "memory.swap.max", "memory.peak", "memory.events", "anon")


@dataclass(frozen=True)
class MemoryLimit:
    """A control group with a limit, valid inside `memory_limited`."""

    folder: Path
    names: Names
    mib: int

    def command(self, *command: str | Path) -> list[str]:
        """Wrap `command` to run under the limit, with the same process id and exit status."""
        entering = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
        return ["sh", "-ec", entering, "-", str(self.folder), *map(str, command)]

    @property
    def peak_mib(self) -> float:
        """The peak of memory, page cache included."""
        return int((self.folder / self.names.peak).read_text()) / 2**20

    @property
    def held_mib(self) -> float:
        """The memory in use now, without the page cache."""
        return _count(self.folder / "memory.stat", self.names.held) / 2**20

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed because of the limit."""
        return _count(self.folder / self.names.events, "oom_kill")


@contextmanager
def memory_limited(mib: int) -> Iterator[MemoryLimit]:
    """Limit commands to `mib`; on exit, kill what still runs. Check `find_missing_requirement` first."""
    parent, names = _parent_group()
    folder = parent / f"wheelfactory-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        (folder / names.limit).write_text(str(mib << 20))
        _without_swap(folder, names, mib)
        yield MemoryLimit(folder, names, mib)
    finally:
        _remove(folder)


def find_missing_requirement() -> str | None:
    """Return why this machine cannot set such a limit, or None if it can."""
    try:
        with memory_limited(64) as limit:
            _ = limit.peak_mib, limit.kills, limit.held_mib
    except OSError as error:
        return f"needs a control group of its own: {error}"
    return None


def _parent_group() -> tuple[Path, Names]:
    """Find the group in which a new one can limit memory.

    Version 1: the group of this process. Version 2 forbids limits below a group that has processes, so it is the
    nearest ancestor that delegates the memory controller.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            own = MOUNTED / "memory" / path[1:]
            return (own if own.exists() else MOUNTED / "memory", V1)  # in a container the root may be the whole tree
    own = MOUNTED / path[1:]
    for folder in (own, *own.parents):
        if "memory" in _read_words(folder / "cgroup.subtree_control"):
            return folder, V2
    raise FileNotFoundError(f"no memory controller in {MOUNTED}")


def _read_words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _without_swap(folder: Path, names: Names, mib: int) -> None:
    """Disable swap. Kernels without swap accounting lack the file; on version 1, swappiness 0 replaces it."""
    if (folder / names.swap).exists():
        (folder / names.swap).write_text(str(mib << 20) if names is V1 else "0")
    elif (folder / "memory.swappiness").exists():
        (folder / "memory.swappiness").write_text("0")


def _count(path: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.split()[0] == name)


def _remove(folder: Path) -> None:
    """Remove the group, with retries: a killed process stays in it for a moment."""
    deadline = time.monotonic() + 300
    while True:
        for process in (folder / "cgroup.procs").read_text().split():
            os.kill(int(process), signal.SIGKILL)
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
