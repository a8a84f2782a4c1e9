"""The account of a run: a planned cell is published, waits for kernels, or is a gap that says where it is missing."""

from __future__ import annotations

import pytest

from report_rows import shown
from wheelfactory.pipeline.reconcile import Gap, reconcile

A, B, C = (f"fa2.8.3-rocm6.4-torch2.9.1-cp31{minor}-ck" for minor in range(3))


def test_what_was_planned_built_and_published_is_complete() -> None:
    account = reconcile([A, B], [B, A], [A, B])
    assert account.complete
    assert account.published == (A, B)
    assert account.lines() == ["planned 2, published 2, missing 0"]


@pytest.mark.parametrize(
    ("built", "published", "missing"),
    [
        ([A], [A], "no verified wheel reached the upload"),
        ([A, B], [A], "its wheel was verified and is not published"),
    ],
    ids=["not built", "not published"],
)
def test_a_gap_says_where_the_cell_is_missing(built: list[str], published: list[str], missing: str) -> None:
    account = reconcile([A, B], built, published)
    assert account.gaps == (Gap(B, missing),)
    assert not account.complete
    assert f"missing  {B}: {missing}" in account.lines()
    assert f"{B}: {missing}" in shown(account.markdown())


def test_a_cell_published_by_an_earlier_attempt_is_no_gap() -> None:
    account = reconcile([A], [], [A])
    assert (account.complete, account.published, account.published_unselected) == (True, (A,), ())


def test_nothing_built_of_a_plan_is_a_gap_for_each_cell() -> None:
    assert [gap.cell for gap in reconcile([C, A, B], [], []).gaps] == [A, B, C]


def test_an_empty_plan_is_complete() -> None:
    assert reconcile([], [], []).lines() == ["planned 0, published 0, missing 0"]


def test_a_cell_whose_kernels_are_still_compiled_waits_and_is_no_gap() -> None:
    account = reconcile([A, B], [A], [A], pending=[B])
    assert (account.complete, account.pending, account.gaps) == (True, (B,), ())
    assert account.lines() == ["planned 2, published 1, missing 0, later 1 (kernels are still to be compiled)"]


def test_a_later_cell_that_was_built_must_be_published() -> None:
    account = reconcile([A, B], [A, B], [A], pending=[A, B])
    assert (account.pending, account.gaps) == ((), (Gap(B, "its wheel was verified and is not published"),))


def test_later_cells_that_were_not_planned_are_of_no_concern() -> None:
    assert reconcile([A], [A], [A], pending=[B]).pending == ()


def test_what_was_not_planned_is_told_and_what_was_built_so_is_not_accepted() -> None:
    account = reconcile([A], [A, B], [A, B, C])
    assert not account.complete
    assert account.gaps == ()
    assert (account.built_unselected, account.published_unselected) == ((B,), (C,))
    assert account.lines()[1:] == [
        f"not planned, yet built  {B}",
        "published without being planned, as by earlier runs: 1 cell",
    ]
    assert f"{B}: not planned, yet built" in shown(account.markdown())


def test_the_verdict_and_what_to_do_come_first_in_a_summary() -> None:
    first, _, *steps = reconcile([A], [], []).markdown().splitlines()
    assert first == "**Missing: 1 planned cell.**"
    assert steps[0].startswith("1. ")
    assert "Re-run failed jobs" in reconcile([A], [], []).markdown()


def test_a_complete_run_needs_no_steps() -> None:
    text = reconcile([A], [A], [A]).markdown()
    assert text.startswith("**Nothing that was planned is missing.**\n")
    assert "Re-run" not in text


def test_what_nobody_planned_is_no_reason_to_run_anything_again() -> None:
    text = reconcile([A], [A, B], [A]).markdown()
    assert text.startswith("**1 cell built that nobody planned.**")
    assert "Re-run failed jobs" not in text
