"""What a log says of its compile -> what is left of it: CPU time, time, and the end at a number of jobs.

The costs are those of `kernels.compiler.costs`: measured with Debian's hipcc (clang 21) on one core; AMD's compiler and
other cores differ, so a rate that the log itself shows is preferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wheelfactory.explain.progress import Progress
from wheelfactory.kernels.compiler.costs import Ledger, predict, seed_cost

USUAL_MIX: Mapping[str, int] = {
    **{f"fmha_fwd_d{dim}": 144 for dim in (32, 64, 128, 256)},
    **{f"fmha_bwd_d{dim}": 320 for dim in (32, 64, 128, 256)},
    **{f"fmha_fwd_splitkv_d{dim}": 144 for dim in (32, 64, 128, 256)},
    "fmha_fwd_splitkv_combine_d128": 99,
    "fmha_fwd_appendkv_d128": 96,
    "fmha_bwd_convert_dq_d128": 96,
    "fmha_bwd_dot_do_o_d128": 48,
    **{f"fmha_{kind}_api": 1 for kind in ("fwd", "bwd", "fwd_splitkv", "fwd_appendkv")},
}
"""How many sources of each kind flash-attn 2.8.3 compiles for all head dims, by a name that stands for them (counted
from its generator's output: 2,775). What a log does not name is taken to be of this mix."""

ONE_HEAD_DIM = 704
"""Objects of 2.8.3 with one head dim: fewer would not make a library."""

RELEASES = {
    1387: "flash-attn 2.6.3",
    2206: "flash-attn 2.7.4",
    2782: "flash-attn 2.8.3 with all head dims",
    ONE_HEAD_DIM: "flash-attn 2.8.3 with one head dim",
}
"""By the number of objects: generated kernels and seven binding files (five in 2.6.3), counted from the generators."""

CHEAPEST_S = 7.9
"""No kernel of the table took less CPU time: a floor for what is left when the mix is another one."""

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
    names = tuple(f"arch{index}" for index in range(archs))
    total = sum(predict(Ledger(), source, names, "").cpu_s * count for source, count in USUAL_MIX.items())
    return total / sum(USUAL_MIX.values())


def forecast(progress: Progress, jobs: int, archs: int, jobs_so_far: int) -> Forecast:
    """What is left of a compile with this many jobs and archs (at least 1 each).

    What the log's rate shows was reached with `jobs_so_far`.
    """
    one_arch = mean_cost(1)
    factor = seed_cost("fmha_bwd_d128", archs).cpu_s / seed_cost("fmha_bwd_d128", 1).cpu_s
    left_count = progress.total - progress.done
    done = progress.cost_done + (progress.done - min(progress.named, progress.done)) * one_arch
    left = max(one_arch * progress.total - done, left_count * CHEAPEST_S) if left_count else 0.0
    left_s, measured = left * factor / jobs, False
    rate = progress.rate
    if rate:
        seconds_a_predicted = progress.done * 60 / rate / done if done else 0.0
        left_s, measured = left * seconds_a_predicted * jobs_so_far / jobs, True
    return Forecast(
        jobs=jobs,
        archs=archs,
        cpu_hours=one_arch * progress.total * factor / 3600,
        cpu_hours_left=left * factor / 3600,
        left_s=left_s,
        measured=measured,
        ends_at=_end(progress.last_time, left_s),
        whole_s=one_arch * progress.total * factor / jobs,
    )


def _end(last_time: float | None, left_s: float) -> float | None:
    return last_time + left_s if last_time is not None and last_time + left_s < _YEAR_10000 else None
