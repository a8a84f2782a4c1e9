"""How far a compile is, as the line that a person reads: rate, time left by prediction, memory."""

from __future__ import annotations


def estimate_time_left(predicted_left_s: float, predicted_done_s: float, elapsed_s: float, jobs: int) -> float:
    """Seconds left: what is predicted for the rest, at the speed with which the predictions came true so far.

    Predictions are CPU seconds. Before anything was done, all `jobs` are taken to compile all the time.
    """
    if not predicted_done_s:
        return predicted_left_s / jobs
    return predicted_left_s * elapsed_s / predicted_done_s


def render_status_line(name: str, done: int, total: int, *, elapsed_s: float, left_s: float, peak_mib: int) -> str:
    """What has ended, in the form of ninja: ``[111/2525] 38.2/min, 75 min left, peak 1204 MiB: NAME``."""
    rate = done / elapsed_s * 60 if elapsed_s else 0.0
    return f"[{done}/{total}] {rate:.1f}/min, {format_duration(left_s)} left, peak {peak_mib} MiB: {name}"


def format_duration(seconds: float) -> str:
    """A time as a person says it: ``45 s``, ``20 min``, ``2 h 05 min``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"
