"""Reconciliation of a run: a selected cell is published, waits for kernels, or is a gap; and the job summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from release_factory import passed_gates, quick_gates
from report_rows import rows_of, shown, table_rows
from wheelfactory.pipeline.reconcile import Reconciliation, job_summary
from wheelfactory.verify.result import GateResult

A, B, C = (f"fa2.8.3-rocm6.4-torch2.9.1-cp31{minor}-ck" for minor in range(3))
T = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
GPU = GateResult.not_run("gpu", "not asked for")


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


def test_missing_cells_come_first_after_the_next_steps(tmp_path: Path) -> None:
    text = job_summary(Reconciliation([A, B], [A]), rows_of(tmp_path, [A]))
    assert text.startswith("**Missing: 1 selected cell.**\n\n1. ")
    assert [row[:2] for row in table_rows(text)[1:]] == [[B, "missing"], [A, "published"]]


def test_a_known_wheel_is_listed_with_size_and_gates_or_missing_checks(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, [A], gates=(*passed_gates(A), GPU))
    unverified = rows_of(tmp_path, [T], gates=(*quick_gates(T), GPU))
    text = job_summary(Reconciliation([A, B, C, T], [A, B, T], [C]), (*rows, *unverified))
    found = {cells[0]: cells[1:] for cells in table_rows(text)[1:]}
    assert found[A] == ["published", "1.2 MB", "8 passed; not run: gpu"]
    assert found[B] == ["published", "", ""]
    assert found[C][0] == "pending: kernels not compiled yet"
    assert found[T][2] == "not checked: numbers; 5 passed; not run: emulation, gpu"


def test_a_run_without_cells_has_no_table() -> None:
    text = job_summary(Reconciliation([], []), ())
    assert "Nothing to build" in text
    assert table_rows(text) == []


def test_a_summary_over_the_limit_is_cut_but_keeps_missing_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wheelfactory.pipeline.reconcile.SUMMARY_LIMIT", 10_000)
    cells = [f"fa2.8.3-rocm6.4-torch2.9.1-cp3{number}-ck" for number in range(100, 400)]
    missing = max(cells)
    published = [cell for cell in cells if cell != missing]
    text = job_summary(Reconciliation(cells, published), ())
    assert len(text.encode()) <= 10_000
    assert "more are not shown" in text
    assert table_rows(text)[1][:2] == [missing, "missing"]
