"""What a log says of its compile -> what is left of it: CPU time, time, and the end at a number of jobs.

The costs are those of `kernels.compiler.costs`: measured with Debian's hipcc (clang 21) on one core; AMD's compiler and
other cores differ, so a rate that the log itself shows is preferred.
"""

from __future__ import annotations

from dataclasses import dataclass

from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.progress import Progress
from wheelfactory.kernels.compiler.costs import seed_cost
from wheelfactory.kernels.compiler.status import time_left

ONE_HEAD_DIM = 704
"""Objects of 2.8.3 with one head dim: fewer would not make a library."""

_YEAR_10000 = 253_402_300_800
"""In seconds since 1970: no calendar of Python's goes so far."""


@dataclass(frozen=True)
class Forecast:
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
    whole_s: float
    """The whole compile with `jobs`, predicted."""


def mean_cost(archs: int) -> float:
    """CPU seconds that a source of the usual mix is predicted to take, for a number of archs."""
    mix = glossary().usual_mix
    return sum(seed_cost(source, archs).cpu_s * count for source, count in mix.items()) / sum(mix.values())


def forecast(progress: Progress, jobs: int, archs: int, jobs_so_far: int) -> Forecast:
    """What is left of a compile with this many jobs and archs (at least 1 each).

    What the log's rate shows was reached with `jobs_so_far`.
    """
    one_arch, left_count = mean_cost(1), progress.total - progress.done
    factor = seed_cost("fmha_bwd_d128", archs).cpu_s / seed_cost("fmha_bwd_d128", 1).cpu_s
    done_s = progress.cost_done + (progress.done - min(progress.named, progress.done)) * one_arch
    cheapest = min(seed_cost(source, 1).cpu_s for source in glossary().usual_mix)  # a floor where the mix is another
    left_s = max(one_arch * progress.total - done_s, left_count * cheapest) * factor if left_count else 0.0
    whole_s = one_arch * progress.total * factor
    time_s = left_s / jobs
    if progress.rate:
        elapsed_s = progress.done * 60 / progress.rate
        time_s = time_left(left_s, done_s * factor, elapsed_s * jobs_so_far / jobs, jobs)
    end = progress.last_time + time_s if progress.last_time is not None else _YEAR_10000
    return Forecast(
        jobs=jobs,
        archs=archs,
        cpu_hours=whole_s / 3600,
        cpu_hours_left=left_s / 3600,
        left_s=time_s,
        measured=bool(progress.rate),
        ends_at=end if end < _YEAR_10000 else None,
        whole_s=whole_s / jobs,
    )
