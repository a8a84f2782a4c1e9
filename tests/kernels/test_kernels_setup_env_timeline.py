"""The trace of a compile is true to what ran when, and has what its viewers need."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from wheelfactory.kernels.compiler.store import ObjectRecord
from wheelfactory.kernels.setup_env import render_trace


def compiled(
    start: float, end: float, source: str = "fmha_fwd_d64", *, targets: tuple[str, ...] = ("gfx942",), peak: int = 100
) -> ObjectRecord:
    return ObjectRecord(source, targets, "0" * 64, 1, max(0.0, end - start), peak, 1.7e9 + start, 1.7e9 + end)


def many(count: int, seed: int = 1) -> list[ObjectRecord]:
    random = Random(seed)  # noqa: S311 # it must be repeatable
    starts = [random.uniform(0, 5000) for _ in range(count)]
    return [compiled(start, start + random.expovariate(1 / 60), f"fmha_fwd_d64_{n}") for n, start in enumerate(starts)]


def events(entries: Iterable[ObjectRecord], phase: str = "X") -> list[dict[str, Any]]:
    return [event for event in json.loads(render_trace(entries))["traceEvents"] if event["ph"] == phase]


def test_each_compile_is_a_complete_event_in_microseconds_from_the_first_start() -> None:
    first, second = events([compiled(20, 27.5, "fmha_bwd_d128_bf16"), compiled(0, 30)])
    assert (first["name"], first["ts"], first["dur"]) == ("fmha_fwd_d64 for gfx942", 0, 30_000_000)
    assert (second["name"], second["ts"], second["dur"]) == ("fmha_bwd_d128_bf16 for gfx942", 20_000_000, 7_500_000)
    assert (second["cat"], second["args"]) == ("bwd", {"CPU s": 7.5, "peak MiB": 100})
    (event,) = events([compiled(10, 4)])
    assert (event["ts"], event["dur"]) == (0, 0), "of a clock that was set back"
    assert events([compiled(10, 4)], "C") == []


@pytest.mark.parametrize("seed", range(5))
def test_events_of_a_thread_never_overlap_and_there_are_as_many_threads_as_ran_at_once(seed: int) -> None:
    found = events(many(300, seed))

    for thread in {event["tid"] for event in found}:
        mine = [event for event in found if event["tid"] == thread]
        assert all(one["ts"] + one["dur"] <= two["ts"] for one, two in pairwise(mine))
    at_once = max(sum(two["ts"] <= one["ts"] < two["ts"] + two["dur"] for two in found) for one in found)
    assert {event["tid"] for event in found} == set(range(at_once))


def test_memory_is_the_sum_of_what_runs() -> None:
    found = events([compiled(0, 10, peak=100), compiled(5, 15, peak=30), compiled(10, 20, peak=7)], "C")
    levels = [(event["ts"] // 1_000_000, event["args"]["MiB"]) for event in found]
    assert levels == [(0, 100), (5, 130), (10, 37), (15, 7), (20, 0)]
