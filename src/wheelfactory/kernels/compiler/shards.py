"""Kernel sources -> shards of nearly equal cost, the same on every machine that is told the same costs."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SHARD = re.compile("([0-9]{1,5})/([0-9]{1,5})")


@dataclass(frozen=True)
class Shard:
    """One of `count` parts; `index` counts from 1. Raises `ValueError` for an index that is none of them."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise ValueError(f"shard {self.index} of {self.count}: the first of N is 1/N, the last N/N")

    def __str__(self) -> str:
        """As `parse` reads it: ``2/6``."""
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard that ``I/N`` names. Raises `ValueError` for anything else."""
        match = _SHARD.fullmatch(text)
        if match is None:
            raise ValueError(f"not a shard: {text!r}, one looks like 2/6")
        return cls(int(match[1]), int(match[2]))


def cut_shards(costs: Mapping[str, float], count: int) -> tuple[tuple[str, ...], ...]:
    """`count` shards of the names, each in the order to compile them in: the longest first.

    Each name goes to the shard with the least CPU seconds so far, the longest name first, so that no two shards differ
    by more than one compile. Names of equal cost are taken in the order of the alphabet and shards of equal cost in
    their own: the order of `costs` does not matter.
    """
    shards: list[list[str]] = [[] for _ in range(count)]
    emptiest = [(0.0, number) for number in range(count)]
    for name in longest_first(costs):
        taken, number = emptiest[0]
        heapq.heapreplace(emptiest, (taken + costs[name], number))
        shards[number].append(name)
    return tuple(map(tuple, shards))


def longest_first(costs: Mapping[str, float]) -> list[str]:
    """The names by falling cost, those of equal cost in the order of the alphabet."""
    return sorted(costs, key=lambda name: (-costs[name], name))


def wall_time(costs: Iterable[float], jobs: int) -> float:
    """Seconds until the last of these compiles ends, if `jobs` run at once and the longest start first."""
    waiting = sorted(costs, reverse=True)
    free = [0.0] * min(jobs, len(waiting))
    for cost in waiting:
        heapq.heapreplace(free, free[0] + cost)
    return max(free, default=0.0)


def min_shard_count(
    costs: Mapping[str, float], budget_s: float, jobs: int, *, predicted: Mapping[str, float] | None = None
) -> int:
    """The least number of shards of which each takes at most `budget_s` seconds where `jobs` compiles run at once.

    `predicted` has the CPU seconds to expect where the costs that every machine cuts by are others. Raises `ValueError`
    if one compile alone takes longer than the budget.
    """
    times = costs if predicted is None else predicted
    longest = max(times.values(), default=0.0)
    if longest > budget_s:
        raise ValueError(f"one compile takes {longest:.0f} s, more than the {budget_s:.0f} s of a shard")
    # rounded down, so that sums of floating-point numbers never start the search above the least
    count = max(1, int(sum(times.values()) / budget_s / jobs)) if times else 1
    while any(wall_time((times[name] for name in shard), jobs) > budget_s for shard in cut_shards(costs, count)):
        count += 1
    return count
