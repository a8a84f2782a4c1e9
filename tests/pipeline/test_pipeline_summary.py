"""The job summary of a run: the verdict and what to do first, then every cell with what is known of it."""

from __future__ import annotations

from pathlib import Path

from release_factory import passed_gates, quick_gates
from report_rows import rows_of, table_rows
from wheelfactory.pipeline.reconcile import SUMMARY_LIMIT, job_summary, reconcile
from wheelfactory.verify.result import GateResult

A, B, C = (f"fa2.8.3-rocm6.4-torch2.9.1-cp31{minor}-ck" for minor in range(3))
T = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
GPU = GateResult.not_run("gpu", "not asked for")


def test_missing_cells_come_first_with_what_to_do(tmp_path: Path) -> None:
    text = job_summary(reconcile([A, B], [A], [A]), rows_of(tmp_path, [A]))
    assert text.startswith("**Missing: 1 planned cell.**\n\n1. ")
    assert [row[:2] for row in table_rows(text)[1:]] == [[B, "missing"], [A, "published"]]


def test_a_cell_has_its_size_and_its_gates(tmp_path: Path) -> None:
    text = job_summary(reconcile([A, B], [A, B], [A, B]), rows_of(tmp_path, [A], gates=(*passed_gates(A), GPU)))
    assert table_rows(text)[1:] == [
        [A, "published", "1.2 MB", "8 passed; not run: gpu"],
        [B, "published", "", ""],
    ]


def test_a_cell_whose_wheel_is_not_verified_says_what_was_not_checked(tmp_path: Path) -> None:
    text = job_summary(reconcile([T], [T], [T]), rows_of(tmp_path, [T], gates=(*quick_gates(T), GPU)))
    (row,) = table_rows(text)[1:]
    assert row[3] == (
        "not checked: kernels compiled for its GPUs, numbers; 5 passed; not run: ahead-of-time, interpreter, gpu"
    )


def test_a_cell_that_waits_for_kernels_is_told_apart() -> None:
    assert (
        table_rows(job_summary(reconcile([C], [], [], [C]), ()))[1][1] == "later: its kernels are still to be compiled"
    )


def test_a_run_without_cells_says_so() -> None:
    text = job_summary(reconcile([], [], []), ())
    assert "Nothing to build" in text
    assert table_rows(text) == []


def test_a_summary_of_very_many_cells_is_cut_and_says_so() -> None:
    cells = [f"fa2.8.3-rocm6.4-torch2.9.1-cp3{number}-ck" for number in range(10, 20_010)]
    text = job_summary(reconcile(cells, cells, cells), ())
    assert len(text.encode()) <= SUMMARY_LIMIT
    assert "more are not shown" in text
