"""Cut kernel sources into shards of nearly equal cost, the same on every machine with the same costs."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SHARD = re.compile("([0-9]{1,5})/([0-9]{1,5})")


@dataclass(frozen=True)
class Shard:
    """One of `count` parts; `index` counts from 1. Raises `ValueError` for an index out of range."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise ValueError(f"shard {self.index} of {self.count}: the first of N is 1/N, the last N/N")

    def __str__(self) -> str:
        """Such as ``2/6``; the inverse of `parse`."""
        return f"{self.index}/{self.count}"

    @staticmethod
    def names(count: int) -> tuple[str, ...]:
        """``1/6`` to ``6/6``, for a `count` of 6."""
        return tuple(str(Shard(index, count)) for index in range(1, count + 1))

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Parse ``I/N``. Raises `ValueError` for anything else."""
        match = _SHARD.fullmatch(text)
        if match is None:
            raise ValueError(f"not a shard: {text!r}, one looks like 2/6")
        return cls(int(match[1]), int(match[2]))


def cut_shards(costs: Mapping[str, float], count: int) -> tuple[tuple[str, ...], ...]:
    """Cut the names into `count` shards, each sorted by falling cost, the order to compile in.

    The order of `costs` does not matter.
    """
    shards: list[list[str]] = [[] for _ in range(count)]
    emptiest = [(0.0, number) for number in range(count)]
    # the most expensive first, each to the cheapest shard so far: no two shards then differ by more than one compile
    for name in longest_first(costs):
        load, number = emptiest[0]
        heapq.heapreplace(emptiest, (load + costs[name], number))
        shards[number].append(name)
    return tuple(map(tuple, shards))


def longest_first(costs: Mapping[str, float]) -> list[str]:
    """Sort the names by falling cost, then by alphabet."""
    return sorted(costs, key=lambda name: (-costs[name], name))


def wall_time(costs: Iterable[float], jobs: int) -> float:
    """Seconds until all compiles end, with `jobs` at once and the longest first."""
    waiting = sorted(costs, reverse=True)
    free = [0.0] * min(jobs, len(waiting))
    for cost in waiting:
        heapq.heapreplace(free, free[0] + cost)
    return max(free, default=0.0)


def min_shard_count(
    costs: Mapping[str, float], budget_s: float, jobs: int, *, predicted: Mapping[str, float] | None = None
) -> int:
    """The smallest number of shards that each take at most `budget_s` seconds with `jobs` compiles at once.

    `costs` decide how shards are cut; `predicted`, if given, how long they take. Raises `ValueError` if one compile
    alone exceeds the budget.
    """
    times = costs if predicted is None else predicted
    longest = max(times.values(), default=0.0)
    if longest > budget_s:
        raise ValueError(f"one compile takes {longest:.0f} s, more than the {budget_s:.0f} s of a shard")
    # rounded down, so that rounding errors of the sum never start the search above the minimum
    count = max(1, int(sum(times.values()) / budget_s / jobs)) if times else 1
    while any(wall_time((times[name] for name in shard), jobs) > budget_s for shard in cut_shards(costs, count)):
        count += 1
    return count
