"""Coverage: every cell and combination is counted once, and shown as lines, as Markdown and as JSON."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from release_factory import PUBLISHED, quick_gates
from report_rows import einops_row, rows_of, shown, table_rows
from small_matrix import small_matrix
from wheelfactory.commands.status import SHOWN_REASONS, cell_lines, coverage_json, coverage_markdown, summary_lines
from wheelfactory.core.cell import Backend
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.expand import Expansion, expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.coverage import (
    NEEDS_RUNNER,
    RUNNER_HINT,
    CellState,
    Coverage,
    compute_coverage,
    decisive_rows,
    page_runner_note,
)

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


@pytest.fixture
def coverage(tmp_path: Path) -> Coverage:
    """Five cells wanted: one published, one yanked; and one published that is not wanted."""
    rows = (*rows_of(tmp_path, [TRITON, GONE]), *rows_of(tmp_path, [CK], yanked="wrong <b>numbers</b>"))
    return compute_coverage(expand(small_matrix()), rows)


def test_each_cell_has_a_line_and_the_summary_counts_wanted_missing_yanked_and_excluded(coverage: Coverage) -> None:
    lines = dict(re.split("  +", line, maxsplit=1) for line in cell_lines(coverage))
    assert lines.pop(TRITON) == "published"
    assert lines.pop(CK) == "yanked: wrong <b>numbers</b>"
    assert set(lines.values()) == {"missing"}
    first, excluded, *reasons = summary_lines(coverage, "wheelhouse")
    assert first == "published in wheelhouse: 1 of 5 cells, 3 missing, 1 yanked"
    assert excluded.startswith("excluded: 26 combinations, for ")
    assert "      8  flash-attn 2.6.3 has no triton backend" in reasons
    assert reasons[-1] == f"published, but no longer in the matrix: {GONE}"


def test_an_unverified_wheel_counts_as_published_with_its_missing_checks(tmp_path: Path) -> None:
    coverage = compute_coverage(expand(small_matrix()), rows_of(tmp_path, [TRITON], gates=quick_gates(TRITON)), TRITON)
    reason = "not checked: numbers"
    assert cell_lines(coverage) == [f"{TRITON}  published, {reason}"]
    assert summary_lines(coverage, "x") == ["published in x: 1 of 1 cell, 1 not verified"]
    parsed = json.loads(json.dumps(coverage_json(coverage, "x")))
    assert (parsed["published"], parsed["unverified"], parsed["cells"][0]["unverified"]) == (1, 1, reason)
    text = coverage_markdown(coverage)
    assert ["all", "1", "1", "1", "0", "0", "0", "0"] in table_rows(text)
    assert "1 cell not verified" in text
    assert f"{TRITON}: {reason}" in shown(text)


def test_cells_that_need_a_runner_are_a_state_of_their_own_with_one_hint(tmp_path: Path) -> None:
    coverage = compute_coverage(expand(small_matrix()), rows_of(tmp_path, [TRITON]))
    lines = dict(re.split("  +", line, maxsplit=1) for line in cell_lines(coverage))
    assert lines.pop(TRITON) == "published"
    assert list(lines.values()) == [NEEDS_RUNNER] * 4
    first, note, *_ = summary_lines(coverage, "x")
    assert first == "published in x: 1 of 5 cells"
    assert note == f"not built here: needs a runner: 4 CK cells; {RUNNER_HINT}"
    parsed = json.loads(json.dumps(coverage_json(coverage, "x")))
    assert (parsed["wanted"], parsed["missing"], parsed["needs-runner"]) == (5, 0, 4)
    assert (parsed["backends"]["ck"]["needs-runner"], parsed["backends"]["triton"]["needs-runner"]) == (4, 0)
    assert {cell["state"] for cell in parsed["cells"] if cell["id"] != TRITON} == {"needs-runner"}
    text = coverage_markdown(coverage)
    assert ["all", "5", "1", "0", "0", "0", "4", "26"] in table_rows(text)
    assert f"<summary>{note}</summary>" in text
    assert "missing cell" not in text
    assert text.count(CK) == text.count(RUNNER_HINT) == 1


def test_reasons_that_are_not_shown_are_counted() -> None:
    coverage = compute_coverage(expand(load_matrix(MATRIX)), ())
    _, _, excluded, *reasons, rest = summary_lines(coverage, "x")
    shown_here = sum(int(line.split()[0]) for line in reasons)
    assert len(reasons) == SHOWN_REASONS
    lines = summary_lines(coverage, "x", each_reason=False)
    assert lines == [line for line in summary_lines(coverage, "x") if not line.startswith(" ")]
    assert excluded.split()[1] == str(shown_here + int(rest.split()[0])) == str(coverage.counts.excluded_combinations)


def test_json_has_everything(coverage: Coverage) -> None:
    parsed = json.loads(json.dumps(coverage_json(coverage, "x")))
    counts = {"target": "x", "wanted": 5, "published": 1, "yanked": 1, "missing": 3, "unwanted": [GONE]}
    assert {key: parsed[key] for key in counts} == counts
    assert sum(item["combinations"] for item in parsed["excluded"]) == parsed["combinations-excluded"] == 26
    assert {cell["id"]: cell["state"] for cell in parsed["cells"]}[CK] == "yanked"
    assert parsed["backends"]["ck"]["wanted"] == 4
    squares = {(one["backend"], one["rocm"], one["torch"]): one for one in parsed["squares"]}
    assert (squares["ck", "6.4", "2.9.1"]["wanted"], squares["ck", "6.4", "2.9.1"]["yanked"]) == (2, 1)


def test_markdown_has_the_sums_by_group_and_names_what_is_missing_yanked_and_unwanted(coverage: Coverage) -> None:
    text = coverage_markdown(coverage)
    rows = table_rows(text)
    assert ["all", "5", "1", "0", "1", "3", "0", "26"] in rows
    (square,) = (row for row in rows if row[0] == "ROCm 6.4, torch 2.9.1")
    assert square[1:7] == ["3", "1", "0", "1", "1", "0"]
    assert next(row for row in rows if row[1] == "flash-attn 2.6.3 has no triton backend")[0] == "8"
    assert "<summary>3 missing cells</summary>" in text
    assert f"{CK} is yanked: wrong <b>numbers</b>" in shown(text)
    assert f"{GONE} is published, but no longer in the matrix" in shown(text)
    assert "fa2.6.3-rocm6.2-torch2.5.1-cp311-ck" in shown(text)
