"""Estimates: sums, schedules and limits, on sets small enough to add up by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wheelfactory.core.cell import Cell
from wheelfactory.kernels.compiler.costs import DRIVER_MIB, EMPTY_COST, Cost, Ledger, Measurement, cut_shards
from wheelfactory.kernels.compiler.targets import HOST
from wheelfactory.kernels.estimate import (
    ARCHIVE_RATIO,
    WORKFLOW_SHARDING,
    CostModel,
    Estimate,
    ResourceLimit,
    Runners,
    Sharding,
    check_link_limits,
    estimate_set,
    fit_jobs,
    min_shard_count,
    wall_time,
)
from wheelfactory.kernels.kernel_set import CALL_CPU_S, KernelSet
from wheelfactory.kernels.set_estimates import estimate_sets, render_estimate, total_cpu_hours
from wheelfactory.kernels.source_list import SourceList

TARGETS = ("gfx942",)
SOURCES = tuple(f"fmha_fwd_d64_x{number}" for number in range(8))
LISTED = SourceList(SOURCES, 10**9, "")


SOME_COSTS = st.dictionaries(st.text(max_size=4), st.floats(min_value=0.01, max_value=1000), min_size=1, max_size=40)


def ledger(cpu_s: float, *names: str, peak_mib: int = 900, size: int = 10**6) -> Ledger:
    """Each of these sources measured alike."""
    return Ledger(tuple(Measurement(name, TARGETS, "0123456789abcdef", cpu_s, peak_mib, size) for name in names))


def estimate(
    *, by: Ledger, cut_by: Ledger | None = None, shards: int | None = None, budget_s: float = 100, **runners: float
) -> Estimate:
    knowledge = CostModel(by, cut_by or Ledger())
    machines = Runners(**{"count": 2, "cores": 2, **runners})  # type: ignore[arg-type]
    return estimate_set(LISTED, TARGETS, knowledge, Sharding(machines, shards, budget_s / 3600))


def test_an_estimate_sums_up_eight_compiles_of_ten_seconds() -> None:
    made = estimate(by=ledger(10, *SOURCES), shards=4)
    assert made.cpu_s == 80 + CALL_CPU_S, "the sample of these is one call"
    assert made.shard_cpu_s == (20, 20, 20, 20)
    assert made.imbalance == 1
    assert made.longest_shard_s == 10, "two at once"
    assert made.wall_s == 20, "four shards on two runners"
    assert (made.jobs, made.peak_mib) == (2, 2 * (900 + DRIVER_MIB))
    assert made.object_bytes == 8 * 10**6
    assert made.archive_bytes == round(8 * 10**6 * ARCHIVE_RATIO)
    assert made.disk_bytes == 2 * (made.object_bytes + 10**9) + made.archive_bytes, "built, kept and packed once"
    assert made.shards == ("1/4", "2/4", "3/4", "4/4")


def test_a_sample_of_an_arch_is_executed_and_no_host_code() -> None:
    names = tuple(f"fmha_fwd_d64_bf16_batch_b128x64x16_{words}" for words in ("npad_mask", "mask_npad"))
    listed, costs = SourceList(names, 0, ""), CostModel(ledger(10, *names), Ledger())
    made, host = (estimate_set(listed, targets, costs, Sharding(Runners(), 1, 1)) for targets in (TARGETS, (HOST,)))
    assert (made.proof_cpu_s, host.proof_cpu_s) == (CALL_CPU_S, 0), "the first has every word of the second"
    assert total_cpu_hours([made, "unknown"]) * 3600 == pytest.approx(10 + 10 + CALL_CPU_S)


def test_sources_without_code_for_the_arch_cost_an_empty_compile() -> None:
    guards = dict.fromkeys(SOURCES[1:], "defined(__gfx12__)")
    listed = SourceList(SOURCES, 0, "", guards=guards)
    made = estimate_set(listed, TARGETS, CostModel(ledger(10, *SOURCES), Ledger()), Sharding(Runners(), 2, 1))
    assert made.shard_cpu_s == (10, 7 * EMPTY_COST.cpu_s), "shards are cut by these costs, too"
    assert made.object_bytes == 10**6 + 7 * EMPTY_COST.size
    assert (made.sources, made.without_code) == (8, 7)
    cell = Cell.parse("fa2.8.4+git4a948e9-rocm7.2-torch2.13.0-cp312-ck")
    kernel_set = KernelSet("fa2.8.4+git4a948e9", "7.2", TARGETS, cxx11_abi=None, cells=(cell,))
    (of_set,) = estimate_sets([kernel_set], CostModel(Ledger(), Ledger()), WORKFLOW_SHARDING, lambda _: listed)
    assert not isinstance(of_set, str)
    assert of_set.without_code == 7
    shown = list(render_estimate(kernel_set, made, Runners()))
    assert shown[1] == "  flash-attn 2.8.4 preview (commit 4a948e9)"
    assert shown[3] == "  sources    8, 7 of them without code for this arch"


def test_shards_are_cut_by_the_shared_ledger_and_timed_by_this_machines() -> None:
    first, *others = SOURCES
    heavy = Ledger((*ledger(70, first).measurements, *ledger(10, *others).measurements))
    assert estimate(by=heavy, shards=2).shard_cpu_s == (100, 40), "dealt out as if all were equal"
    assert estimate(by=heavy, cut_by=heavy, shards=2).shard_cpu_s == (70, 70)
    assert estimate(by=heavy, shards=2).imbalance == pytest.approx(100 / 70)


def test_an_estimate_names_the_basis_of_its_predictions() -> None:
    assert estimate(by=Ledger()).predicted_from == "seed table, no measurement (nine of ten compiles within 32%)"
    two = Ledger((*ledger(10, *SOURCES).measurements, Measurement(SOURCES[0], TARGETS, "another", 10, 900, 1000)))
    assert estimate(by=two).predicted_from == "ledger with 8 measurements of compiler 0123456789ab"


def costs(*peaks_mib: int) -> list[Cost]:
    return [Cost(10, peak, 1000) for peak in peaks_mib]


@pytest.mark.parametrize(
    ("peaks", "cores", "memory_gib", "jobs"),
    [
        ((924,) * 9, 4, 5.6, 4),
        ((4000,) * 9, 4, 16, 2),
        ((924,) * 9, 4, 4.2, 3),
        ((924,) * 3, 4, 16, 3),
        ((1948, 924, 924), 4, 3, 2),
        ((9000,), 4, 1, 1),
    ],
)
def test_parallel_compiles_are_limited_so_that_the_heaviest_fit(
    peaks: tuple[int, ...], cores: int, memory_gib: float, jobs: int
) -> None:
    assert fit_jobs(costs(*peaks), Runners(cores=cores, memory_gib=memory_gib))[0] == jobs


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=9), st.integers(1, 4), st.floats(1, 20))
def test_the_peak_is_the_sum_of_the_heaviest_parallel_compiles(peaks: list[int], cores: int, memory_gib: float) -> None:
    jobs, peak_mib = fit_jobs(costs(*peaks), Runners(cores=cores, memory_gib=memory_gib))
    assert peak_mib == sum(sorted(peaks, reverse=True)[:jobs]) + jobs * DRIVER_MIB
    assert jobs == 1 or peak_mib <= memory_gib * 1024


def limit(made: Estimate, name: str) -> ResourceLimit:
    (found,) = (item for item in made.limits if item.name == name)
    return found


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("longest shard", estimate(by=ledger(2.8 * 3600, *SOURCES), shards=2, cores=1)),
        ("memory of a runner", estimate(by=ledger(10, *SOURCES, peak_mib=20_000), memory_gib=16)),
        ("disk of a runner", estimate(by=ledger(10, *SOURCES, size=2 * 10**9))),
        ("archive as a release asset", estimate(by=ledger(10, *SOURCES, size=math.ceil((1 << 28) / ARCHIVE_RATIO)))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_above_the_limit_fails(name: str, made: Estimate) -> None:
    assert limit(estimate(by=ledger(10, *SOURCES)), name).passed
    assert not limit(made, name).passed
    assert limit(made, name).value >= limit(made, name).limit


def test_a_link_of_the_objects_of_a_release_fits_and_one_of_nine_times_as_many_does_not() -> None:
    name = "fmha_bwd_d128_bf16_batch_" + "b" * 135
    total, longest = check_link_limits([name] * 2775)
    assert total.passed
    assert total.limit == 6, "what Linux allows at most, as the build raises its own limit"
    assert not check_link_limits([name] * 9 * 2775)[0].passed
    assert longest.passed
    assert not check_link_limits(["x" * (128 << 10)])[1].passed


@pytest.mark.parametrize(
    ("costs", "jobs", "seconds"),
    [((), 4, 0), ((3,), 4, 3), ((1, 1, 1, 1), 1, 4), ((1, 1, 1, 1), 4, 1), ((2, 2, 5), 2, 5), ((4, 4, 3, 3, 2), 2, 9)],
)
def test_the_longest_start_first_and_the_last_to_end_counts(
    costs: tuple[float, ...], jobs: int, seconds: float
) -> None:
    assert wall_time(costs, jobs) == seconds


def fits(costs: dict[str, float], count: int, budget_s: float, jobs: int) -> bool:
    return all(wall_time([costs[name] for name in shard], jobs) <= budget_s for shard in cut_shards(costs, count))


@given(SOME_COSTS, st.floats(min_value=1, max_value=5), st.integers(1, 4))
@example({"a": 0.1, "b": 0.1, "c": 0.1}, 1.0, 1)
def test_the_least_number_of_shards_that_fits(costs: dict[str, float], times: float, jobs: int) -> None:
    budget_s = max(costs.values()) * times
    count = min_shard_count(costs, budget_s, jobs)
    assert fits(costs, count, budget_s, jobs)
    assert not any(fits(costs, fewer, budget_s, jobs) for fewer in range(1, count))


def test_predicted_times_must_fit_the_budget_when_shards_are_cut_by_other_costs() -> None:
    costs = {str(number): 30.0 for number in range(1000)}
    assert min_shard_count(costs, 3000, 1, predicted={name: 2 * cost for name, cost in costs.items()}) == 20
    alike = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}
    assert min_shard_count(alike, 6, 1, predicted={"a": 5, "b": 1, "c": 5, "d": 1}) == 3, "two would leave a with c"


def test_a_compile_that_is_longer_than_a_shard_may_be_is_an_error() -> None:
    with pytest.raises(ValueError, match="one compile takes 114 s, more than the 100 s of a shard"):
        min_shard_count({"long": 114.0, "short": 9.0}, 100, 4)
