"""A limit of memory that the kernel keeps: commands run in a control group of their own, version 1 or 2, without swap.

The page cache of files that they read and write counts too. The kernel frees it before it kills, so `peak_mib` may be
at the limit although the programs needed less, and `held_mib` is what they cannot give back.
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
    """Has a line ``oom_kill COUNT``."""
    held: str
    """The line of ``memory.stat`` with the bytes that are no page cache."""


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
    """A control group with a limit, while `memory_limited` holds it."""

    folder: Path
    names: Names
    mib: int

    def command(self, *command: str | Path) -> list[str]:
        """What runs `command` under the limit; its process id and how it ends are those of `command`."""
        entering = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
        return ["sh", "-ec", entering, "-", str(self.folder), *map(str, command)]

    @property
    def peak_mib(self) -> float:
        """The most that was used at once, page cache included."""
        return int((self.folder / self.names.peak).read_text()) / 2**20

    @property
    def held_mib(self) -> float:
        """What is used now, without the page cache."""
        return _count(self.folder / "memory.stat", self.names.held) / 2**20

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed because of the limit."""
        return _count(self.folder / self.names.events, "oom_kill")


@contextmanager
def memory_limited(mib: int) -> Iterator[MemoryLimit]:
    """A limit of `mib`; at the end what still runs under it is killed. Check `find_missing_requirement` first."""
    parent, names = _place()
    folder = parent / f"wheelfactory-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        (folder / names.limit).write_text(str(mib << 20))
        _without_swap(folder, names, mib)
        yield MemoryLimit(folder, names, mib)
    finally:
        _remove(folder)


def find_missing_requirement() -> str | None:
    """Why there can be no such limit here, or None if there can."""
    try:
        with memory_limited(64) as limit:
            _ = limit.peak_mib, limit.kills, limit.held_mib
    except OSError as error:
        return f"needs a control group of its own: {error}"
    return None


def _place() -> tuple[Path, Names]:
    """Where a control group can be made: below this process's own (version 1), or beside it.

    In version 2 a group with processes has none below it that limit memory, so it is the nearest one above that hands
    the memory controller down.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            own = MOUNTED / "memory" / path[1:]
            return (own if own.exists() else MOUNTED / "memory", V1)  # a container may show the whole as the root
    own = MOUNTED / path[1:]
    for folder in (own, *own.parents):
        if "memory" in _words(folder / "cgroup.subtree_control"):
            return folder, V2
    raise FileNotFoundError(f"no memory controller in {MOUNTED}")


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _without_swap(folder: Path, names: Names, mib: int) -> None:
    """Kernels without accounting of swap lack the file; there version 1 can be told not to swap."""
    if (folder / names.swap).exists():
        (folder / names.swap).write_text(str(mib << 20) if names is V1 else "0")
    elif (folder / "memory.swappiness").exists():
        (folder / "memory.swappiness").write_text("0")


def _count(path: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.split()[0] == name)


def _remove(folder: Path) -> None:
    """Processes leave a group a moment after they are killed; until then it cannot be removed."""
    deadline = time.monotonic() + 10
    while True:
        for process in (folder / "cgroup.procs").read_text().split():
            os.kill(int(process), signal.SIGKILL)
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
