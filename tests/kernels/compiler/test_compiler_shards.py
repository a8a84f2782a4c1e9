"""Shards: complete, disjoint, balanced, and the same on every machine."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wheelfactory.kernels.compiler.shards import Shard, cut_shards, longest_first, min_shard_count, wall_time

COSTS = st.dictionaries(st.text(max_size=4), st.floats(min_value=0.01, max_value=1000), max_size=40)
COUNTS = st.integers(1, 12)


@pytest.mark.parametrize(
    "text", ["", "1", "0/6", "7/6", "-1/6", "1/0", "1/6/6", " 1/6", "1/6\n", "1 / 6", "a/b", "\u0661/6", "1/1000000"]
)
def test_an_invalid_shard_is_refused(text: str) -> None:
    assert str(Shard.parse("2/6")) == "2/6"
    with pytest.raises(ValueError, match="shard"):
        Shard.parse(text)


@given(COSTS, COUNTS)
def test_each_name_is_in_exactly_one_shard(costs: dict[str, float], count: int) -> None:
    shards = cut_shards(costs, count)
    assert len(shards) == count
    assert sorted(name for shard in shards for name in shard) == sorted(costs)


@given(COSTS, COUNTS, st.randoms(use_true_random=False))
def test_the_order_of_the_sources_does_not_matter(costs: dict[str, float], count: int, chance: random.Random) -> None:
    names = list(costs)
    chance.shuffle(names)
    assert cut_shards({name: costs[name] for name in names}, count) == cut_shards(costs, count)


@given(COSTS, COUNTS)
def test_no_two_shards_differ_by_more_than_one_compile(costs: dict[str, float], count: int) -> None:
    loads = [sum(costs[name] for name in shard) for shard in cut_shards(costs, count)]
    assert max(loads) - min(loads) <= max(costs.values(), default=0) + 1e-6


def test_the_longest_goes_first_and_each_to_the_cheapest_shard() -> None:
    costs = {"a": 1.0, "b": 5.0, "c": 3.0, "d": 4.0}
    assert longest_first(costs) == ["b", "d", "c", "a"]
    assert cut_shards(costs, 2) == (("b", "a"), ("d", "c"))


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


@given(COSTS.filter(bool), st.floats(min_value=1, max_value=5), st.integers(1, 4))
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
