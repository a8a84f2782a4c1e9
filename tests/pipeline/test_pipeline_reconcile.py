"""Reconciliation of a run: a selected cell is published, waits for kernels, or is a gap."""

from __future__ import annotations

import pytest

from report_rows import shown
from wheelfactory.pipeline.reconcile import Reconciliation

A, B, C = (f"fa2.8.3-rocm6.4-torch2.9.1-cp31{minor}-ck" for minor in range(3))


def test_a_run_with_every_selected_cell_published_is_complete() -> None:
    outcome = Reconciliation([B, A], [A, B], results=["select=success", "kernels=skipped"])
    assert outcome.complete
    assert outcome.published == [A, B]
    assert outcome.lines() == ["selected 2, published 2, missing 0"]
    text = outcome.markdown()
    assert text.startswith("**No selected cell is missing.**\n")
    assert "Re-run" not in text
    assert Reconciliation([], []).complete


def test_gaps_name_the_cells_and_the_next_steps() -> None:
    outcome = Reconciliation([C, A, B], [A, "another"])
    assert (outcome.gaps, outcome.complete) == ([B, C], False)
    assert outcome.lines() == [
        "selected 3, published 1, missing 2",
        f"missing  {B}: not published",
        f"missing  {C}: not published",
        "published by earlier runs: 1 cell",
    ]
    verdict, _, *rest = outcome.markdown().splitlines()
    assert verdict == "**Missing: 2 selected cells.**"
    assert rest[0].startswith("1. ")
    assert "Re-run failed jobs" in outcome.markdown()


def test_a_selected_cell_may_wait_for_kernels() -> None:
    outcome = Reconciliation([A, B], [A], waiting=[B, C])
    assert (outcome.complete, outcome.pending, outcome.gaps) == (True, [B], [])
    assert outcome.lines() == ["selected 2, published 1, missing 0, pending 1 (kernels not compiled yet)"]


@pytest.mark.parametrize("result", ["failure", "cancelled", "timed_out", ""])
def test_a_job_that_did_not_succeed_fails_the_run_even_if_no_cell_is_missing(result: str) -> None:
    outcome = Reconciliation([A], [A], results=["select=success", f"release={result}"])
    assert not outcome.complete
    assert f"job  release={result}" in outcome.lines()
    assert f"release={result}" in shown(outcome.markdown())
