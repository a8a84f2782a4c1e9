"""Render the progress of a compile as a line: rate, predicted time left, memory."""

from __future__ import annotations


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
