"""Derived figures: ratios to the textbook attention, FA3 beside FA2."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpu.bench.made_reports import not_trained, timed, trained
from wheelfactory.gpu.bench.measure import summarize, with_ratios
from wheelfactory.gpu.bench.reports import AttentionRow


def test_each_row_is_compared_with_the_textbook_at_its_length() -> None:
    rows = with_ratios(
        [
            timed("sdpa", 128, 2.0, 1.0),
            timed("sdpa", 256, 4.0, 2.0),
            timed("plain", 128, 6.0, 50.0),
            timed("plain", 256, 40.0, 200.0),
            timed("sdpa", 512, 4.0, 0.0),
            timed("plain", 512, 4.0, 1.0),
        ]
    )
    assert [(row.speedup, row.memory_ratio) for row in rows] == [
        *[(3.0, 50.0), (10.0, 100.0), (1.0, 1.0), (1.0, 1.0)],
        *[(1.0, None), (1.0, 1.0)],
    ]


def test_nothing_is_compared_with_a_textbook_that_had_no_memory() -> None:
    no_memory = AttentionRow(implementation="plain", seqlen=128, status="out of memory")
    rows = with_ratios([timed("sdpa", 128, 2.0, 1.0), no_memory, timed("sdpa", 256, 2.0, 1.0)])
    assert {(row.speedup, row.memory_ratio) for row in rows} == {(None, None)}


@pytest.mark.parametrize(("plain", "sdpa"), [(0.3, 0.0), (0.0, 0.3)], ids=["the textbook", "the other"])
def test_no_speed_up_comes_of_a_time_that_is_not_steady(plain: float, sdpa: float) -> None:
    rows = with_ratios([timed("sdpa", 128, 2.0, 1.0, noise=sdpa), timed("plain", 128, 6.0, 50.0, noise=plain)])
    assert [row.speedup for row in rows] == [None, None if plain else 1.0]
    assert [row.memory_ratio for row in rows] == [50.0, 1.0]  # bytes are counted, not timed


def test_fa3_is_compared_with_fa2() -> None:
    summary = summarize([trained("ck", 120.0, peak_mib=8000.0), trained("triton", 100.0, peak_mib=6000.0)])
    assert summary.fa3_speedup == pytest.approx(1.2)
    assert (summary.fa3_memory_ratio, summary.fa3_memory_delta_mib) == (0.75, -2000.0)
    summary = summarize([trained("ck", 120.0, peak_mib=None), trained("triton", 100.0, peak_mib=None)])
    assert (summary.fa3_memory_ratio, summary.fa3_memory_delta_mib) == (None, None), "not measured"


def test_fa3_is_compared_with_nothing_else() -> None:
    cases: list[Sequence[object]] = [(trained("triton"),), (not_trained("ck"), trained("triton")), (trained("sdpa"),)]
    for results in cases:
        assert set(summarize(results).model_dump(exclude={"fa2", "fa3"}).values()) == {None}  # type: ignore[arg-type]
