"""Wanted, published, yanked, missing, left out and excluded: every cell and combination is counted once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from release_factory import PUBLISHED
from report_rows import einops_row, rows_of
from small_matrix import small_matrix
from wheelfactory.core.cell import Backend
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.expand import Expansion, expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.coverage import CellState, Coverage, compute_coverage, decisive_rows, page_runner_note

TRITON = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
CK = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
GONE = "fa2.8.3-rocm5.7-torch2.3.0-cp311-ck"
"""A cell that the matrix does not have."""


@pytest.fixture(scope="module")
def expansion() -> Expansion:
    return expand(small_matrix())


@pytest.fixture
def rows(tmp_path: Path) -> tuple[WheelRow, ...]:
    """One cell published, one yanked, one published that is not wanted, and a dependency."""
    yanked = rows_of(tmp_path, [CK], yanked="wrong numbers")
    return (*rows_of(tmp_path, [TRITON, GONE]), *yanked, einops_row(tmp_path))


def states(coverage: Coverage) -> dict[str, CellState]:
    return {covered.cell.id: covered.state for covered in coverage.cells}


def test_every_wanted_cell_has_a_state(expansion: Expansion, rows: tuple[WheelRow, ...]) -> None:
    found = states(compute_coverage(expansion, rows))
    assert list(found) == [cell.id for cell in expansion.cells]
    assert {cell: state for cell, state in found.items() if state is not CellState.MISSING} == {
        TRITON: CellState.PUBLISHED,
        CK: CellState.YANKED,
    }


@pytest.mark.parametrize("backend", Backend)
def test_ck_cells_need_a_runner_until_one_was_published_and_triton_cells_never(
    expansion: Expansion, rows: tuple[WheelRow, ...], backend: Backend
) -> None:
    """`rows` without wheels of CK, and the same with each of its CK wheels: a yanked one, and one of no wanted cell."""
    without = [row for row in rows if not str(row.cell).endswith("-ck")]
    coverage = compute_coverage(expansion, [row for row in without if row.cell != TRITON], f"*-{backend}")
    expected = CellState.NEEDS_RUNNER if backend is Backend.CK else CellState.MISSING
    assert set(states(coverage).values()) == {expected}
    for ck in (row for row in rows if row not in without):
        found = states(compute_coverage(expansion, [*without, ck], f"*-{backend}"))
        assert CellState.NEEDS_RUNNER not in found.values()


def test_the_selection_does_not_decide_whether_there_is_a_runner(expansion: Expansion, tmp_path: Path) -> None:
    other = "fa2.6.3-*-ck"
    found = compute_coverage(expansion, rows_of(tmp_path, [CK]), other)
    assert set(states(found).values()) == {CellState.MISSING}
    assert set(states(compute_coverage(expansion, (), other)).values()) == {CellState.NEEDS_RUNNER}
    assert "4 more CK wheels" in page_runner_note(small_matrix(), ())
    assert page_runner_note(small_matrix(("[ck, triton]", "[triton]")), ()) == "", "a matrix without CK needs none"


def test_the_commonest_reason_comes_first_and_equal_ones_by_name(expansion: Expansion) -> None:
    excluded = compute_coverage(expansion, ()).counts.excluded
    assert list(excluded) == sorted(excluded, key=lambda item: (-item[1], item[0]))
    assert excluded[0][1] > excluded[-1][1]


def test_groups_add_up_to_the_whole() -> None:
    coverage = compute_coverage(expand(load_matrix(MATRIX)), ())
    backends = coverage.counts_by(lambda cell: cell.backend)
    squares = coverage.counts_by(lambda cell: (cell.backend, cell.rocm, cell.torch))
    assert set(backends) == set(Backend)
    for groups in (backends.values(), squares.values()):
        assert sum(counts.wanted for counts in groups) == coverage.counts.wanted
        assert sum(counts.excluded_combinations for counts in groups) == coverage.counts.excluded_combinations


def test_only_selects_cells_and_exclusions_alike(expansion: Expansion, rows: tuple[WheelRow, ...]) -> None:
    coverage = compute_coverage(expansion, rows, "*-triton")
    assert states(coverage) == {TRITON: CellState.PUBLISHED}
    assert coverage.excluded
    assert {item.combination[4] for item in coverage.excluded} == {Backend.TRITON}
    assert coverage.unwanted == ()


def test_the_last_published_good_wheel_of_a_cell_decides(tmp_path: Path) -> None:
    (first,) = rows_of(tmp_path, [CK])
    later = first.model_copy(update={"filename": "a" + first.filename, "published": PUBLISHED + timedelta(days=1)})
    yanked = first.model_copy(update={"yanked": "broken", "published": PUBLISHED + timedelta(days=1)})
    for good, other in ((later, first), (first, yanked)):
        assert decisive_rows((good, other)) == decisive_rows((other, good)) == {CK: good}
