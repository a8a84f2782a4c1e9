"""Read the progress of the last ninja run in a log, and estimate the remaining time.

Costs are from `kernels.compiler.costs`, measured with Debian's hipcc (clang 21) on one core. Other compilers and cores
differ, so the rate in the log takes precedence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.log_lines import LogLine, is_wall_clock
from wheelfactory.kernels.compiler.costs import ordinary_cost
from wheelfactory.kernels.compiler.hipcc import kernel_name
from wheelfactory.kernels.compiler.schedule import estimate_time_left

ONE_HEAD_DIM = 704
"""Objects of 2.8.3 with one head dim, the smallest possible library."""

_STATUS = re.compile(r"^\[(\d{1,6})/(\d{1,6})\] (.+)$")
# what `wheelfactory.kernels.compiler.schedule` puts after ``[n/m]``
_OURS = re.compile(r"(\d+(?:\.\d+)?)/min, (.+?) left, peak (\d+) MiB(?:: (\S+))?$")
# what `wheelfactory.core.progress` prints for a long step without a terminal
_STEP = re.compile(r"^[^\[]+: \[(\d{1,6})/(\d{1,6})\] (\d{1,9}) s, (.+)$")
_COMPILES = re.compile(r" -c | -o |^Building |^Compiling |^(?:hip|c)_?compile|^(?:CXX|HIP) ")
# every compile command of flash-attn contains one of these: a kernel name, the module name or a header path
_OF_FLASH_ATTN = ("fmha", "flash", "composable_kernel")
# a log with this many runs that do not start at 1 counts as a mix of parallel builds. Runs of concatenated logs can
# also lack their start, but there are rarely so many
_MIXED = 3
# seconds since 1970. Python's dates end before the year 10000
_YEAR_10000 = 253_402_300_800


@dataclass(frozen=True)
class Progress:
    """The progress of a compile."""

    done: int
    total: int
    runs: int
    """The number of ninja runs in the log; the other fields describe the last one."""
    mixed: bool
    """Whether the log mixes lines of several parallel compiles."""
    current: str | None = None
    """The name of the last compiled source; None if unknown."""
    cost_done: float = 0.0
    """Predicted CPU seconds, for one arch, of the named sources that are done (`kernels.compiler.costs`)."""
    named_count: int = 0
    """How many of the finished sources the log names."""
    first: tuple[float, int] | None = None
    """The first time in the log and the number done then; None without times."""
    last: tuple[float, int] | None = None
    """The last time and the number done then."""
    reported_rate: float | None = None
    """Compiles per minute, as printed by the build."""
    reported_left: str | None = None
    """``75 min``, as printed by the build; None if it prints none."""
    peak_mib: int | None = None

    @property
    def left(self) -> int:
        """How many sources are left."""
        return self.total - self.done

    @property
    def elapsed_s(self) -> float | None:
        """Seconds from the first time to the last; None without times."""
        return self.last[0] - self.first[0] if self.first and self.last and self.last[0] > self.first[0] else None

    @property
    def last_time(self) -> float | None:
        """The time of the last progress line by the log's clock; None without a clock."""
        return self.last[0] if self.last and is_wall_clock(self.last[0]) else None

    @property
    def rate_per_minute(self) -> float | None:
        """Compiles per minute, from the times of the log or as printed by the build; None without both."""
        if self.elapsed_s and self.first and self.last and self.last[1] > self.first[1]:
            return (self.last[1] - self.first[1]) * 60 / self.elapsed_s
        return self.reported_rate


class ProgressReader:
    """Reads the lines of a log in order and keeps the progress."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        """The progress in the lines so far; None without progress lines."""
        self._jumps = 0
        """How many runs did not start at 1, as a restarted build does."""

    def read_line(self, line: LogLine) -> bool:
        """Read the next line; return whether it shows progress."""
        if "/" not in line.text or "] " not in line.text:  # true for most lines, and faster than the patterns
            return False
        match = _STATUS.match(line.text)
        if match and _is_compile(match[3]) and _is_valid_count(match):
            before = self.progress and (self.progress.done, self.progress.total)
            progress = self._advance(int(match[1]), int(match[2]), line.time)
            if before != (progress.done, progress.total):  # output of repeated `tail` calls repeats lines
                progress = _with_name(progress, match[3])
            self.progress = _with_reported_rate(progress, match[3])
            return True
        step = _STEP.match(line.text)
        if step and step[4].endswith(("left", "MiB")) and _is_valid_count(step):
            time = float(step[3]) if line.time is None else line.time
            self.progress = _with_reported_rate(self._advance(int(step[1]), int(step[2]), time), step[4])
            return True
        return False

    def _advance(self, done: int, total: int, time: float | None) -> Progress:
        last = self.progress
        if last is None or total != last.total or done < last.done:
            self._jumps += last is not None and done > 1
            last = Progress(done, total, last.runs + 1 if last else 1, self._jumps >= _MIXED)
        if time is None:
            return replace(last, done=done)
        return replace(last, done=done, first=last.first or (time, done), last=(time, done))


def _with_name(progress: Progress, text: str) -> Progress:
    ours = _OURS.match(text)
    name = ours[4] or "" if ours else source_name(text)
    if not name:
        return progress
    cost = progress.cost_done + ordinary_cost(name, 1).cpu_s
    return replace(progress, current=name, named_count=progress.named_count + 1, cost_done=cost)


def _with_reported_rate(progress: Progress, text: str) -> Progress:
    ours = _OURS.match(text)
    if not ours:
        return progress
    return replace(progress, reported_rate=float(ours[1]), reported_left=ours[2], peak_mib=int(ours[3]))


def _is_compile(text: str) -> bool:
    if _OURS.match(text) or text.startswith("fmha_"):
        return True
    return _COMPILES.search(text) is not None and any(word in text for word in _OF_FLASH_ATTN)


def _is_valid_count(counts: re.Match[str]) -> bool:
    """Whether ninja can print this ``n/m``."""
    return int(counts[1]) <= int(counts[2]) != 0


def source_name(text: str) -> str:
    """Return the name of the source that a command or a ninja description compiles; empty if it names none."""
    if text.startswith("fmha_"):
        return kernel_name(text.split()[0])
    _, found, rest = text.partition(" -c ")
    match = re.search(r"\S+\.(?:o|hip|cu|cpp)\b", rest if found else text)
    return PurePosixPath(kernel_name(match[0])).name if match else ""


@dataclass(frozen=True)
class RemainingTime:
    """The remaining part of a compile."""

    jobs: int
    archs: int
    cpu_hours: float
    """Predicted for the whole compile."""
    cpu_hours_left: float
    """Predicted for the remaining part."""
    left_s: float
    """Remaining seconds, from the log's rate if it has one, otherwise predicted for `jobs`."""
    measured: bool
    """Whether `left_s` is from the log's rate."""
    ends_at: float | None
    """Seconds since 1970 by the log's clock; None without a clock or with an impossible one."""
    total_s: float
    """Predicted seconds of the whole compile with `jobs`."""


def mean_cpu_seconds() -> float:
    """Return the predicted mean CPU seconds of a source in a typical release, for one arch."""
    mix = glossary().typical_kernel_counts
    return sum(ordinary_cost(source, 1).cpu_s * count for source, count in mix.items()) / sum(mix.values())


def estimate_remaining_time(progress: Progress, jobs: int, archs: int, jobs_so_far: int) -> RemainingTime:
    """Estimate the rest of a compile with `jobs` and `archs` (at least 1 each); its rate so far used `jobs_so_far`."""
    one_arch, left_count = mean_cpu_seconds(), progress.left
    factor = ordinary_cost("fmha_bwd_d128", archs).cpu_s / ordinary_cost("fmha_bwd_d128", 1).cpu_s
    done_s = progress.cost_done + (progress.done - min(progress.named_count, progress.done)) * one_arch
    # a lower limit, if the actual mix is cheaper
    cheapest = min(ordinary_cost(source, 1).cpu_s for source in glossary().typical_kernel_counts)
    left_s = max(one_arch * progress.total - done_s, left_count * cheapest) * factor if left_count else 0.0
    whole_s = one_arch * progress.total * factor
    time_s = left_s / jobs
    if progress.rate_per_minute:
        elapsed_s = progress.done * 60 / progress.rate_per_minute
        time_s = estimate_time_left(left_s, done_s * factor, elapsed_s * jobs_so_far / jobs, jobs)
    end = progress.last_time + time_s if progress.last_time is not None else _YEAR_10000
    return RemainingTime(
        jobs=jobs,
        archs=archs,
        cpu_hours=whole_s / 3600,
        cpu_hours_left=left_s / 3600,
        left_s=time_s,
        measured=bool(progress.rate_per_minute),
        ends_at=end if end < _YEAR_10000 else None,
        total_s=whole_s / jobs,
    )
