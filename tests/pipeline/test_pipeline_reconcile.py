"""Reconciliation of a run: a selected cell is published, waits for kernels, or is a gap."""

from __future__ import annotations

import pytest

from report_rows import shown
from wheelfactory.pipeline.reconcile import Gap, reconcile

A, B, C = (f"fa2.8.3-rocm6.4-torch2.9.1-cp31{minor}-ck" for minor in range(3))


def test_a_run_with_every_selected_cell_published_is_complete() -> None:
    outcome = reconcile([B, A], [B, A], [A, B])
    assert outcome.complete
    assert outcome.published == (A, B)
    assert outcome.lines() == ["selected 2, published 2, missing 0"]
    text = outcome.markdown()
    assert text.startswith("**No selected cell is missing.**\n")
    assert "Re-run" not in text
    assert reconcile([], [], []).complete


def test_a_cell_published_by_an_earlier_attempt_is_no_gap() -> None:
    outcome = reconcile([A], [], [A])
    assert (outcome.complete, outcome.published, outcome.published_unselected) == (True, (A,), ())


@pytest.mark.parametrize(
    ("built", "reason"),
    [([A], "no verified wheel reached the upload"), ([A, B], "its wheel was verified but not published")],
    ids=["not built", "not published"],
)
def test_a_gap_names_the_cell_the_reason_and_the_next_steps(built: list[str], reason: str) -> None:
    outcome = reconcile([A, B], built, [A])
    assert outcome.gaps == (Gap(B, reason),)
    assert not outcome.complete
    assert outcome.lines() == ["selected 2, published 1, missing 1", f"missing  {B}: {reason}"]
    verdict, _, *rest = outcome.markdown().splitlines()
    assert verdict == "**Missing: 1 selected cell.**"
    assert rest[0].startswith("1. ")
    assert "Re-run failed jobs" in outcome.markdown()
    assert f"{B}: {reason}" in shown(outcome.markdown())


def test_gaps_are_sorted() -> None:
    assert [gap.cell for gap in reconcile([C, A, B], [], []).gaps] == [A, B, C]


def test_a_selected_cell_may_wait_for_kernels_until_it_is_built() -> None:
    outcome = reconcile([A, B], [A], [A], pending=[B, C])
    assert (outcome.complete, outcome.pending, outcome.gaps) == (True, (B,), ())
    assert outcome.lines() == ["selected 2, published 1, missing 0, pending 1 (kernels not compiled yet)"]
    built = reconcile([A, B], [A, B], [A], pending=[A, B])
    assert (built.pending, [gap.cell for gap in built.gaps]) == ((), [B])


def test_a_built_cell_outside_the_selection_fails_the_run_without_advice_to_rerun_it() -> None:
    outcome = reconcile([A], [A, B], [A, B, C])
    assert not outcome.complete
    assert outcome.gaps == ()
    assert (outcome.built_unselected, outcome.published_unselected) == ((B,), (C,))
    assert outcome.lines()[1:] == [f"built but not selected  {B}", "published by earlier runs: 1 cell"]
    text = outcome.markdown()
    assert text.startswith("**1 cell built but not selected.**")
    assert f"{B}: built but not selected" in shown(text)
    assert "Re-run failed jobs" not in text
