"""Lines of a log -> how far the compile is, and what is left: the last ninja run of the log, whoever printed it.

The costs are those of `kernels.compiler.costs`: measured with Debian's hipcc (clang 21) on one core; AMD's compiler and
other cores differ, so a rate that the log itself shows is preferred.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.log_lines import LogLine, is_wall_clock
from wheelfactory.kernels.compiler.costs import seed_cost
from wheelfactory.kernels.compiler.flags import kernel_name
from wheelfactory.kernels.compiler.status import estimate_time_left

ONE_HEAD_DIM = 704
"""Objects of 2.8.3 with one head dim: fewer would not make a library."""

_STATUS = re.compile(r"^\[(\d{1,6})/(\d{1,6})\] (.+)$")
_OURS = re.compile(r"(\d+(?:\.\d+)?)/min, (.+?) left, peak (\d+) MiB(?:: (\S+))?$")
"""What `wheelfactory.kernels.compiler.status` puts after ``[n/m]``."""
_STEP = re.compile(r"^[^\[]+: \[(\d{1,6})/(\d{1,6})\] (\d{1,9}) s, (.+)$")
"""What `wheelfactory.core.progress` prints of a long step where there is no terminal."""
_COMPILES = re.compile(r" -c | -o |^Building |^Compiling |^(?:hip|c)_?compile|^(?:CXX|HIP) ")
_OF_FLASH_ATTN = ("fmha", "flash", "composable_kernel")
"""One of these is in every compile command of flash-attn: its kernels, its module's name, its headers."""
_OBJECT = re.compile(r"\S+\.(?:o|hip|cu|cpp)\b")
_MIXED = 3
"""So many runs that begin in their midst are no logs put together, of which each may have lost its beginning."""
_YEAR_10000 = 253_402_300_800
"""In seconds since 1970: no calendar of Python's goes so far."""


@dataclass(frozen=True)
class Progress:
    """How far a compile is, as its log tells."""

    done: int
    total: int
    runs: int
    """How often ninja began; only the last run is told of here."""
    mixed: bool
    """Whether lines of several compiles that went on at once are mixed in the log."""
    current: str = ""
    """The name of what was compiled last; empty if the log does not name it."""
    cost_done: float = 0.0
    """CPU seconds for one arch that are predicted for what is named as done (`kernels.compiler.costs`)."""
    named_count: int = 0
    """How many of what is done have names."""
    first: tuple[float, int] | None = None
    """The first time in the log, and what was done then; None without times."""
    last: tuple[float, int] | None = None
    """The last ones."""
    reported_rate: float | None = None
    """A minute, as the build said itself."""
    reported_left: str = ""
    """``75 min``, as the build said itself; empty if it did not."""
    peak_mib: int | None = None

    @property
    def elapsed_s(self) -> float | None:
        """From the first time to the last; None without times in the log."""
        return self.last[0] - self.first[0] if self.first and self.last and self.last[0] > self.first[0] else None

    @property
    def last_time(self) -> float | None:
        """The time of the last line of progress, by the log's clock; None if it has none."""
        return self.last[0] if self.last and is_wall_clock(self.last[0]) else None

    @property
    def rate(self) -> float | None:
        """Compiles a minute: by the times of the log, else as the build said; None if neither is there."""
        if self.elapsed_s and self.first and self.last and self.last[1] > self.first[1]:
            return (self.last[1] - self.first[1]) * 60 / self.elapsed_s
        return self.reported_rate


class ProgressReader:
    """Takes the lines of a log in their order, and knows how far the compile is."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        """What the lines so far tell; None if none told of progress."""
        self._jumps = 0
        """How often a run began in its midst: one that begins again begins with its first compile."""

    def read_line(self, line: LogLine) -> bool:
        """Take the next line; whether it told of progress."""
        if "/" not in line.text or "] " not in line.text:  # most lines; the patterns cost more
            return False
        match = _STATUS.match(line.text)
        if match and _is_compile(match[3]) and _can_be(match):
            before = self.progress and (self.progress.done, self.progress.total)
            progress = self._advanced(int(match[1]), int(match[2]), line.time)
            if before != (progress.done, progress.total):  # a log that was looked at with `tail` tells the same again
                progress = _named(progress, match[3])
            self.progress = _told(progress, match[3])
            return True
        step = _STEP.match(line.text)
        if step and step[4].endswith(("left", "MiB")) and _can_be(step):
            time = float(step[3]) if line.time is None else line.time
            self.progress = _told(self._advanced(int(step[1]), int(step[2]), time), step[4])
            return True
        return False

    def _advanced(self, done: int, total: int, time: float | None) -> Progress:
        last = self.progress
        if last is None or total != last.total or done < last.done:
            self._jumps += last is not None and done > 1
            last = Progress(done, total, last.runs + 1 if last else 1, self._jumps >= _MIXED)
        if time is None:
            return replace(last, done=done)
        return replace(last, done=done, first=last.first or (time, done), last=(time, done))


def _named(progress: Progress, text: str) -> Progress:
    ours = _OURS.match(text)
    name = ours[4] or "" if ours else source_name(text)
    if not name:
        return progress
    cost = progress.cost_done + seed_cost(name, 1).cpu_s
    return replace(progress, current=name, named_count=progress.named_count + 1, cost_done=cost)


def _told(progress: Progress, text: str) -> Progress:
    ours = _OURS.match(text)
    if not ours:
        return progress
    return replace(progress, reported_rate=float(ours[1]), reported_left=ours[2], peak_mib=int(ours[3]))


def _is_compile(said: str) -> bool:
    if _OURS.match(said) or said.startswith("fmha_"):
        return True
    return _COMPILES.search(said) is not None and any(word in said for word in _OF_FLASH_ATTN)


def _can_be(counts: re.Match[str]) -> bool:
    """Whether ninja can have said this ``n/m``."""
    return int(counts[1]) <= int(counts[2]) != 0


def source_name(text: str) -> str:
    """The name of what a command or a description compiles; empty if it names nothing."""
    if text.startswith("fmha_"):
        return kernel_name(text.split()[0])
    _, found, rest = text.partition(" -c ")
    match = _OBJECT.search(rest if found else text)
    return PurePosixPath(kernel_name(match[0])).name if match else ""


@dataclass(frozen=True)
class RemainingTime:
    """What is left."""

    jobs: int
    archs: int
    cpu_hours: float
    """Of the whole compile, predicted."""
    cpu_hours_left: float
    """Predicted."""
    left_s: float
    """Time left: by the log's own rate if it shows one, else predicted for `jobs`."""
    measured: bool
    """Whether `left_s` comes from the log's own rate."""
    ends_at: float | None
    """When, in seconds since 1970 by the log's clock; None if the log has no clock, or a clock that cannot be."""
    total_s: float
    """The whole compile with `jobs`, predicted."""


def mean_cpu_seconds(archs: int) -> float:
    """CPU seconds that a source of the usual mix is predicted to take, for a number of archs."""
    mix = glossary().usual_mix
    return sum(seed_cost(source, archs).cpu_s * count for source, count in mix.items()) / sum(mix.values())


def estimate_remaining_time(progress: Progress, jobs: int, archs: int, jobs_so_far: int) -> RemainingTime:
    """What is left of a compile with this many jobs and archs (at least 1 each).

    What the log's rate shows was reached with `jobs_so_far`.
    """
    one_arch, left_count = mean_cpu_seconds(1), progress.total - progress.done
    factor = seed_cost("fmha_bwd_d128", archs).cpu_s / seed_cost("fmha_bwd_d128", 1).cpu_s
    done_s = progress.cost_done + (progress.done - min(progress.named_count, progress.done)) * one_arch
    cheapest = min(seed_cost(source, 1).cpu_s for source in glossary().usual_mix)  # a floor where the mix is another
    left_s = max(one_arch * progress.total - done_s, left_count * cheapest) * factor if left_count else 0.0
    whole_s = one_arch * progress.total * factor
    time_s = left_s / jobs
    if progress.rate:
        elapsed_s = progress.done * 60 / progress.rate
        time_s = estimate_time_left(left_s, done_s * factor, elapsed_s * jobs_so_far / jobs, jobs)
    end = progress.last_time + time_s if progress.last_time is not None else _YEAR_10000
    return RemainingTime(
        jobs=jobs,
        archs=archs,
        cpu_hours=whole_s / 3600,
        cpu_hours_left=left_s / 3600,
        left_s=time_s,
        measured=bool(progress.rate),
        ends_at=end if end < _YEAR_10000 else None,
        total_s=whole_s / jobs,
    )
