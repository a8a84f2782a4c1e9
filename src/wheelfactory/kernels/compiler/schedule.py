"""Compiles that need nothing of each other -> each of them run: after a kill half as many at once, and it again.

In the place of ninja, which neither repeats a compile nor changes how many it runs. Compiles stay in the process group
of setup.py, so whatever ends that group ends them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from wheelfactory.core import host
from wheelfactory.core.errors import BuildError
from wheelfactory.core.query import NOTICE_PREFIX
from wheelfactory.kernels.compiler.edges import Edge


@dataclass(frozen=True)
class EdgeCommand:
    """What compiles a source."""

    argv: Sequence[str]
    folder: str
    environ: Mapping[str, str]


@dataclass(frozen=True)
class EndedCompile:
    """One compile that ended, for good. Times in seconds, `start` and `end` since 1970."""

    edge: Edge
    code: int
    """Exit status, or the negative number of the signal that ended it."""
    cpu_s: float
    peak_mib: int
    """Memory of its largest process."""
    start: float
    end: float
    output: str
    """What it printed."""


@dataclass(frozen=True)
class _Running:
    edge: Edge
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    start: float
    jobs: int
    """How many were allowed at once when it started."""
    kills: int
    """How many processes the kernel had killed when it started."""


def jobs_after_kill(jobs: int, started_with: int) -> int:
    """How many compiles may run at once after one was killed for want of memory.

    Half as many as when it started, so that several kills by one overload halve once. `jobs` are allowed now.
    """
    return max(1, min(jobs, started_with // 2))


def run_compiles(
    edges: Iterable[Edge], jobs: int, command: Callable[[Edge], EdgeCommand], may_start: Callable[[Edge], bool]
) -> Generator[EndedCompile, None, None]:
    """Compile in this order, up to `jobs` at once, and give each compile as it ends.

    One for which `may_start` is false when its turn comes is left out. After a failure no more are started. Raises
    `BuildError` if one was killed for want of memory twice, the second time though it ran alone; `OSError` if a
    command cannot be started.
    """
    waiting, running, killed, failed = deque(edges), dict[int, _Running](), set[Edge](), False
    try:
        while True:
            while waiting and not failed and len(running) < jobs:
                edge = waiting.popleft()
                if may_start(edge):
                    started = _start(edge, command(edge), jobs)
                    running[started.process.pid] = started
            if not running:
                return
            compile_, ended = _wait(running)
            if not _was_killed(compile_, ended):
                failed = failed or ended.code != 0
                yield ended
                continue
            if compile_.jobs == 1 and compile_.edge in killed:
                raise BuildError(
                    "a compile was killed for want of memory though it ran alone",
                    f"{ended.edge.name}, when it had {ended.peak_mib} MiB",
                    "give the build more memory (--memory of a container), or add swap",
                )
            killed.add(compile_.edge)
            waiting.appendleft(compile_.edge)
            jobs = jobs_after_kill(jobs, compile_.jobs)
            again = f"{compile_.edge.name} was killed for want of memory and is compiled again"
            print(f"{NOTICE_PREFIX}{again}; {jobs} at once from now on", flush=True)
    finally:
        for left in running.values():
            left.process.kill()
            left.process.wait()
            left.output.close()


def _start(edge: Edge, command: EdgeCommand, jobs: int) -> _Running:
    output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the compile has ended
    start, kills = time.time(), host.out_of_memory_kills()
    process = subprocess.Popen(
        command.argv,
        cwd=command.folder,
        env=command.environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    return _Running(edge, process, output, start, jobs, kills)


def _wait(running: dict[int, _Running]) -> tuple[_Running, EndedCompile]:
    """Wait for the next of them to end, and remove it."""
    pid = 0
    while pid not in running:  # who started this process may have left it other children
        pid, status, used = os.wait4(-1, 0)  # which tells what it used, as no method of subprocess does
    compile_ = running.pop(pid)
    compile_.process.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with compile_.output as file:
        file.seek(0)
        output = file.read().decode(errors="replace")
    return compile_, EndedCompile(
        edge=compile_.edge,
        code=compile_.process.returncode,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_mib=used.ru_maxrss // 1024,
        start=compile_.start,
        end=time.time(),
        output=output,
    )


def _was_killed(compile_: _Running, ended: EndedCompile) -> bool:
    """A driver whose compiler was killed ends with a status of its own, so the kernel's count is asked too."""
    return ended.code == -signal.SIGKILL or (ended.code != 0 and host.out_of_memory_kills() > compile_.kills)
