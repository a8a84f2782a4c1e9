"""The estimate of a compile's remaining time, from the log's rate or from measured costs."""

from __future__ import annotations

import dataclasses

import pytest

from explain.build_logs import compiles, read, running, timed
from wheelfactory.build.recipe import GIB_PER_COMPILE
from wheelfactory.explain.causes import symptom_table
from wheelfactory.explain.glossary import glossary
from wheelfactory.explain.progress import ONE_HEAD_DIM, Progress, estimate_remaining_time, mean_cpu_seconds
from wheelfactory.kernels.compiler.costs import ordinary_cost


def progress_of(log: str) -> Progress:
    progress = read(log).progress
    assert progress
    return progress


def test_the_usual_mix_is_a_whole_release() -> None:
    bindings = 7
    mix, releases = glossary().typical_kernel_counts, glossary().releases_by_source_count
    assert releases[str(sum(mix.values()) + bindings)].startswith("flash-attn 2.8.3")
    assert str(ONE_HEAD_DIM) in releases


def test_the_prediction_for_a_release_is_near_a_measured_one() -> None:
    """A stratified sum of real compiles: 21.5 CPU hours for one arch."""
    whole = sum(glossary().typical_kernel_counts.values())
    assert 21.5 / 1.5 < mean_cpu_seconds(1) * whole / 3600 < 21.5 * 1.5


def test_the_memory_per_job_covers_the_largest_compile_and_is_the_one_in_the_remedy() -> None:
    assert (
        max(ordinary_cost(name, 1).peak_mib for name in glossary().typical_kernel_counts) + 100
        <= GIB_PER_COMPILE * 1024
    )
    assert f"a job needs {GIB_PER_COMPILE} GiB" in symptom_table().remedies["fewer jobs"]


def test_without_times_the_estimate_is_from_costs_and_jobs() -> None:
    progress = progress_of(running(111))
    eight, sixteen = estimate_remaining_time(progress, 8, 1, 8), estimate_remaining_time(progress, 16, 1, 8)
    assert not eight.measured
    assert eight.left_s == pytest.approx(eight.cpu_hours_left * 3600 / 8)
    assert sixteen.left_s == pytest.approx(eight.left_s / 2)
    assert 0.9 < eight.cpu_hours_left / (eight.cpu_hours * (2525 - 111) / 2525) < 1.1
    assert eight.ends_at is None


def test_more_archs_cost_more() -> None:
    progress = progress_of(running(111))
    one, two, three = (estimate_remaining_time(progress, 8, archs, 8).left_s for archs in (1, 2, 3))
    assert one < two < 2 * one
    assert three - two == pytest.approx(two - one)


def test_with_times_the_estimate_is_from_the_rate_and_ends_by_the_logs_clock() -> None:
    log = timed(101, seconds=6)
    progress = progress_of(log)
    ahead = estimate_remaining_time(progress, 8, 1, 8)
    assert ahead.measured
    assert ahead.left_s == pytest.approx(
        (2525 - 101) * 6, rel=0.3
    )  # the finished kernels were more expensive than the mean
    assert ahead.ends_at
    assert progress.last_time
    assert ahead.ends_at - progress.last_time == pytest.approx(ahead.left_s)


def test_expensive_kernels_first_leave_a_cheaper_rest() -> None:
    expensive = progress_of("\n".join(compiles(50, name="fmha_bwd_d256_bf16_batch")))
    cheap = progress_of("\n".join(compiles(50, name="fmha_bwd_convert_dq_d64_bf16_batch")))
    assert estimate_remaining_time(expensive, 8, 1, 8).left_s < estimate_remaining_time(cheap, 8, 1, 8).left_s


def test_the_rate_scales_with_the_number_of_jobs() -> None:
    progress = progress_of(timed(50, seconds=6))
    assert estimate_remaining_time(progress, 16, 1, 8).left_s == pytest.approx(
        estimate_remaining_time(progress, 8, 1, 8).left_s / 2
    )


def test_the_estimate_starts_at_the_whole_and_ends_at_zero() -> None:
    finished = dataclasses.replace(progress_of(running(111)), done=2525)
    assert estimate_remaining_time(finished, 8, 1, 8).left_s == 0
    progress = progress_of("[0/2525] fmha_fwd_api")
    ahead = estimate_remaining_time(dataclasses.replace(progress, cost_done=0.0, named_count=0), 8, 1, 8)
    assert ahead.cpu_hours_left == pytest.approx(ahead.cpu_hours)
