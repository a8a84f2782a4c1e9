"""Run independent compiles in parallel. If Linux kills one for memory, halve the jobs and retry it.

This replaces ninja, which neither retries a compile nor changes its number of jobs. Compiles stay in setup.py's process
group, so that a signal to the group ends them. The status line is ninja's.
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
from pathlib import Path
from typing import IO

from wheelfactory.core import host
from wheelfactory.core.errors import BuildError
from wheelfactory.core.query import NOTICE_PREFIX


@dataclass(frozen=True, eq=False)
class Compile:
    """One run of the compiler."""

    name: str
    """For messages, such as ``fmha_fwd_d64_... for gfx942``."""
    source: str
    """The name of the source without extension."""
    targets: tuple[str, ...]
    """What it compiles a kernel for; empty for anything but a kernel."""
    output: Path
    argv: Sequence[str]
    folder: str
    environ: Mapping[str, str]
    predicted_s: float
    """CPU seconds."""
    is_empty: bool = False
    """Whether an empty source is compiled in place of the source, so that the cost says nothing about it."""


@dataclass(frozen=True)
class EndedCompile:
    """One compile that ended and is not retried. `start` and `end` are seconds of the monotonic clock."""

    compile: Compile
    code: int
    """Exit status, or the negative signal number."""
    cpu_s: float
    peak_mib: int
    """Peak of its largest process."""
    start: float
    end: float
    output: str
    """What it printed."""


@dataclass(frozen=True)
class _Running:
    compile: Compile
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    start: float
    jobs: int
    """The maximum of parallel compiles when it started."""
    kills: int
    """The number of out-of-memory kills when it started."""


def jobs_after_kill(jobs: int, started_with: int) -> int:
    """The maximum of parallel compiles after an out-of-memory kill; `jobs` is the current one."""
    # half of what ran when the victim started: several kills by one overload halve only once
    return max(1, min(jobs, started_with // 2))


def run_compiles(
    compiles: Iterable[Compile], jobs: int, may_start: Callable[[Compile], bool], *, keep_going: bool = False
) -> Generator[EndedCompile, None, None]:
    """Compile in this order, up to `jobs` at once, and yield each compile as it ends.

    Skips those for which `may_start` is false when their turn comes. Starts no further compile after a failure, unless
    `keep_going`. Raises `BuildError` if a compile runs out of memory a second time while running alone; `OSError` if a
    command cannot be started.
    """
    waiting, running, killed, failed = deque(compiles), dict[int, _Running](), set[Compile](), False
    try:
        while True:
            while waiting and not failed and len(running) < jobs:
                following = waiting.popleft()
                if may_start(following):
                    started = _start(following, jobs)
                    running[started.process.pid] = started
            if not running:
                return
            victim, ended = _wait(running)
            is_last_try = victim.jobs == 1 and victim.compile in killed
            if not _may_be_killed(victim, ended) or (is_last_try and not _says_killed(ended)):
                failed = failed or (ended.code != 0 and not keep_going)
                yield ended
                continue
            if is_last_try:
                which = f"{victim.compile.name}, killed at {ended.peak_mib} MiB"
                hint = "give the build more memory (--memory of a container), or add swap"
                raise BuildError("out of memory for one compile alone", which, hint)
            killed.add(victim.compile)
            waiting.appendleft(victim.compile)
            jobs = jobs_after_kill(jobs, victim.jobs)
            _tell_of_retry(victim.compile.name, jobs)
    finally:
        for left in running.values():
            left.process.kill()
            left.process.wait()
            left.output.close()


def _tell_of_retry(name: str, jobs: int) -> None:
    rate = "one compile at a time" if jobs == 1 else f"at most {jobs} compiles at once"
    print(f"{NOTICE_PREFIX}{name} was killed for lack of memory: retrying it, with {rate}", flush=True)


def _start(following: Compile, jobs: int) -> _Running:
    output = tempfile.TemporaryFile()  # noqa: SIM115 - _wait closes it
    start, kills = time.monotonic(), host.out_of_memory_kills()
    process = subprocess.Popen(
        following.argv,
        cwd=following.folder,
        env=following.environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    return _Running(following, process, output, start, jobs, kills)


def _wait(running: dict[int, _Running]) -> tuple[_Running, EndedCompile]:
    """Wait for the next compile to end, and remove it from `running`."""
    pid = 0
    while pid not in running:  # the process that exec-ed into this one may have had other children
        pid, status, used = os.wait4(-1, 0)  # subprocess does not report resource usage
    done = running.pop(pid)
    done.process.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with done.output as file:
        file.seek(0)
        output = file.read().decode(errors="replace")
    return done, EndedCompile(
        compile=done.compile,
        code=done.process.returncode,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_mib=used.ru_maxrss // 1024,
        start=done.start,
        end=time.monotonic(),
        output=output,
    )


def _may_be_killed(started: _Running, ended: EndedCompile) -> bool:
    # a driver whose compiler was killed exits with a status of its own, so also ask for the count of kills
    return ended.code == -signal.SIGKILL or (ended.code != 0 and host.out_of_memory_kills() > started.kills)


def _says_killed(ended: EndedCompile) -> bool:
    # the count includes other programs of this machine; a driver of clang, and a shell, print the word
    return ended.code == -signal.SIGKILL or "Killed" in ended.output


def estimate_time_left(predicted_left_s: float, predicted_done_s: float, elapsed_s: float, jobs: int) -> float:
    """Estimate the seconds left: the predicted CPU seconds of the rest, scaled by the speed so far.

    Before the first compile ends, assumes that all `jobs` are always busy.
    """
    if not predicted_done_s:
        return predicted_left_s / jobs
    return predicted_left_s * elapsed_s / predicted_done_s


def render_status_line(name: str, done: int, total: int, *, elapsed_s: float, left_s: float, peak_mib: int) -> str:
    """Render a line in ninja's format: ``[111/2525] 38.2/min, 75 min left, peak 1204 MiB: NAME``."""
    rate = done / elapsed_s * 60 if elapsed_s else 0.0
    return f"[{done}/{total}] {rate:.1f}/min, {format_duration(left_s)} left, peak {peak_mib} MiB: {name}"


def format_duration(seconds: float) -> str:
    """Render a duration: ``45 s``, ``20 min``, ``2 h 05 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"
