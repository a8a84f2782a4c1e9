"""Lines of a log -> how far the compile is: the last ninja run of the log, whoever printed it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from wheelfactory.explain.lines import Line, is_clock
from wheelfactory.kernels.compiler.costs import seed_cost
from wheelfactory.kernels.compiler.flags import kernel_name

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


@dataclass(frozen=True)
class Progress:
    """How far a compile is, as its log tells."""

    done: int
    total: int
    current: str
    """The name of what was compiled last; empty if the log does not name it."""
    cost_done: float
    """CPU seconds for one arch that are predicted for what is named as done (`kernels.compiler.costs`)."""
    named: int
    """How many of what is done have names."""
    counted: int
    """How many ended between the first and the last time."""
    elapsed_s: float | None
    """From the first time to the last; None without times in the log."""
    last_time: float | None
    """The time of the last line of progress, by the log's clock; None if it has none."""
    told_rate: float | None
    """A minute, as the build said itself."""
    told_left: str
    """``75 min``, as the build said itself; empty if it did not."""
    peak_mib: int | None
    runs: int
    """How often ninja began; only the last run is told of here."""
    mixed: bool
    """Whether lines of several compiles that went on at once are mixed in the log."""

    @property
    def rate(self) -> float | None:
        """Compiles a minute: by the times of the log, else as the build said; None if neither is there."""
        if self.elapsed_s and self.counted > 0:
            return self.counted * 60 / self.elapsed_s
        return self.told_rate


class Follower:
    """Takes the lines of a log in their order, and knows how far the compile is."""

    def __init__(self) -> None:
        self._done = self._total = 0
        self.runs = 0
        """How often ninja began."""
        self._jumps = 0
        self._reset()

    def _reset(self) -> None:
        self._first: tuple[float, int] | None = None
        self._last: tuple[float, int] | None = None
        self._current, self._cost, self._named = "", 0.0, 0
        self._rate: float | None = None
        self._left = ""
        self._peak: int | None = None

    def see(self, line: Line) -> bool:
        """Take the next line; whether it told of progress."""
        if "/" not in line.text or "] " not in line.text:  # most lines; the patterns cost more
            return False
        match = _STATUS.match(line.text)
        if match and _is_compile(match[3]) and _can_be(match):
            before = self._done, self._total
            self._advance(int(match[1]), int(match[2]), line.time)
            if before != (self._done, self._total):  # a log that was looked at with `tail` tells the same again
                self._name(match[3])
            self._take_told(match[3])
            return True
        step = _STEP.match(line.text)
        if step and step[4].endswith(("left", "MiB")) and _can_be(step):
            self._advance(int(step[1]), int(step[2]), float(step[3]) if line.time is None else line.time)
            self._take_told(step[4])
            return True
        return False

    def _advance(self, done: int, total: int, time: float | None) -> None:
        if total != self._total or done < self._done:
            self._reset()
            self._jumps += self.runs > 0 and done > 1
            self.runs += 1
        self._done, self._total = done, total
        if time is not None:
            self._first = self._first or (time, done)
            self._last = (time, done)

    def _name(self, text: str) -> None:
        ours = _OURS.match(text)
        name = ours[4] or "" if ours else source_name(text)
        if name:
            self._current = name
            self._named += 1
            self._cost += seed_cost(name, 1).cpu_s

    def _take_told(self, text: str) -> None:
        match = _OURS.match(text)
        if match:
            self._rate, self._left, self._peak = float(match[1]), match[2], int(match[3])

    @property
    def mixed(self) -> bool:
        """Whether lines of several compiles are mixed: a run that begins again begins with its first compile."""
        return self._jumps >= _MIXED

    @property
    def progress(self) -> Progress | None:
        """What the lines so far tell; None if none told of progress."""
        if not self.runs:
            return None
        first, last = self._first, self._last
        return Progress(
            done=self._done,
            total=self._total,
            current=self._current,
            cost_done=self._cost,
            named=self._named,
            counted=last[1] - first[1] if first and last else 0,
            elapsed_s=last[0] - first[0] if first and last and last[0] > first[0] else None,
            last_time=last[0] if last and is_clock(last[0]) else None,
            told_rate=self._rate,
            told_left=self._left,
            peak_mib=self._peak,
            runs=self.runs,
            mixed=self.mixed,
        )


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
