"""How far a compile is, as the line that a person reads: rate, time left by prediction, memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """How far a compile is. Times in seconds, memory in MiB."""

    elapsed_s: float
    done: int
    total: int
    predicted_done_s: float
    """CPU seconds that were predicted for what has ended."""
    predicted_left_s: float
    jobs: int
    peak_mib: int

    @property
    def left_s(self) -> float:
        """Time left."""
        return time_left(self.predicted_left_s, self.predicted_done_s, self.elapsed_s, self.jobs)


def time_left(predicted_left_s: float, predicted_done_s: float, elapsed_s: float, jobs: int) -> float:
    """Seconds left: what is predicted for the rest, at the speed with which the predictions came true so far.

    Predictions are CPU seconds. Before anything was done, all `jobs` are taken to compile all the time.
    """
    if not predicted_done_s:
        return predicted_left_s / jobs
    return predicted_left_s * elapsed_s / predicted_done_s


def status_line(name: str, pace: Pace) -> str:
    """What has ended, in the form of ninja: ``[111/2525] 38.2/min, 75 min left, peak 1204 MiB: NAME``."""
    rate = pace.done / pace.elapsed_s * 60 if pace.elapsed_s else 0.0
    told = f"{rate:.1f}/min, {duration(pace.left_s)} left, peak {pace.peak_mib} MiB"
    return f"[{pace.done}/{pace.total}] {told}: {name}"


def duration(seconds: float) -> str:
    """A time as a person says it: ``45 s``, ``20 min``, ``2 h 05 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"
