"""The job summary of a run: verdict and next steps first, then a table of every cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from release_factory import passed_gates, quick_gates
from report_rows import rows_of, table_rows
from wheelfactory.pipeline.reconcile import Reconciliation, job_summary
from wheelfactory.verify.result import GateResult

A, B, C = (f"fa2.8.3-rocm6.4-torch2.9.1-cp31{minor}-ck" for minor in range(3))
T = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
GPU = GateResult.not_run("gpu", "not asked for")


def test_missing_cells_come_first_after_the_next_steps(tmp_path: Path) -> None:
    text = job_summary(Reconciliation([A, B], [A]), rows_of(tmp_path, [A]))
    assert text.startswith("**Missing: 1 selected cell.**\n\n1. ")
    assert [row[:2] for row in table_rows(text)[1:]] == [[B, "missing"], [A, "published"]]


def test_a_known_wheel_is_listed_with_size_and_gates(tmp_path: Path) -> None:
    text = job_summary(Reconciliation([A, B], [A, B]), rows_of(tmp_path, [A], gates=(*passed_gates(A), GPU)))
    assert table_rows(text)[1:] == [
        [A, "published", "1.2 MB", "8 passed; not run: gpu"],
        [B, "published", "", ""],
    ]


def test_an_unverified_wheel_is_listed_with_its_missing_checks(tmp_path: Path) -> None:
    text = job_summary(Reconciliation([T], [T]), rows_of(tmp_path, [T], gates=(*quick_gates(T), GPU)))
    (row,) = table_rows(text)[1:]
    assert row[3] == ("not checked: numbers; 5 passed; not run: emulation, gpu")


def test_a_pending_cell_is_not_called_missing() -> None:
    assert table_rows(job_summary(Reconciliation([C], [], [C]), ()))[1][1] == "pending: kernels not compiled yet"


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
