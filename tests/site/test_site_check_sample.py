"""Which wheels a check installs: the newest, each kind of wheel, and over the weeks every wheel."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

import pytest

from release_factory import plain_row
from search_rows import FIRST, row_of
from wheelfactory.core.cell import FALLBACK_NAME, Backend, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.check_sample import SampledWheel, choose_sample, count_weeks
from wheelfactory.verify.gates import required_gates
from wheelfactory.verify.result import GateResult, Status

LOADED = load_matrix(MATRIX)
PYTHONS = expand(LOADED).pythons
BUILT = [cell for cell in PYTHONS if cell.flash_attn == "2.8.3" and cell.rocm in ("7.2", "6.4")]
CELLS = [cell for cell in BUILT if not cell.amd_torch]
AMDS = [cell for cell in BUILT if cell.amd_torch]
FALLBACK = plain_row(
    "flash_attention_amd-0.1.0-py3-none-any.whl",
    project=FALLBACK_NAME,
    published=FIRST,
    gates=tuple(GateResult(gate=name, status=Status.PASSED) for name in required_gates(FALLBACK_NAME)),
)
EINOPS = plain_row(published=FIRST)
ROWS = (*(row_of(LOADED, cell) for cell in BUILT), FALLBACK, EINOPS)
NEVER = {EINOPS.filename, *(row_of(LOADED, cell).filename for cell in AMDS)}
"""A dependency, and wheels for AMD's own torch, which is on no index."""
NEWEST_CELL = next(cell for cell in CELLS if cell.backend is Backend.CK and cell.rocm == "6.4")
LATER = FIRST + timedelta(days=90)
NEW = tuple(row.model_copy(update={"published": LATER}) if row.cell == NEWEST_CELL.id else row for row in ROWS)
"""The rows after a release of one more wheel."""


def names(sample: tuple[SampledWheel, ...]) -> list[str]:
    return [wheel.row.filename for wheel in sample]


def kinds(sample: tuple[SampledWheel, ...]) -> list[str]:
    return [str(Cell.parse(wheel.row.cell).backend) if wheel.row.cell else wheel.row.project for wheel in sample]


def test_the_same_rows_number_and_week_give_the_same_sample_in_any_order_of_the_rows() -> None:
    first = choose_sample(ROWS, PYTHONS, 5, 7)
    assert choose_sample(tuple(reversed(ROWS)), PYTHONS, 5, 7) == first


@pytest.mark.parametrize("week", range(0, 60, 7))
def test_the_newest_wheel_comes_first_then_each_other_kind(week: int) -> None:
    sample = choose_sample(NEW, PYTHONS, 4, week)
    assert sample[0].row.cell == NEWEST_CELL.id
    assert kinds(sample) == ["ck", "triton", FALLBACK_NAME, "ck"]
    assert len(set(names(sample))) == 4


def test_a_wheel_is_installed_from_the_index_that_lists_it_else_from_that_of_the_newest() -> None:
    update = {"project": "flash-attn", "version": "2.6.3+fallback", "filename": "flash_attn-2.6.3+fallback.whl"}
    named = FALLBACK.model_copy(update=update)
    newest, *others = choose_sample((*NEW, named), PYTHONS, 5, 7)
    found = {wheel.row.filename: wheel.index for wheel in others}
    assert found[named.filename] == ("fallback",)
    assert found[FALLBACK.filename] == newest.index


def test_over_the_weeks_every_wheel_is_installed() -> None:
    samples = [choose_sample(NEW, PYTHONS, 5, week) for week in range(1000, 1000 + len(CELLS))]
    seen = Counter(name for sample in samples for name in names(sample))
    assert seen.keys() == {row.filename for row in NEW} - NEVER


def test_neighbours_in_a_sample_differ_in_rocm_or_torch() -> None:
    # 12 places: the newest, the fallback, and CK and Triton in turn
    sample = choose_sample(NEW, PYTHONS, 12, 3)
    for backend in ("ck", "triton"):
        pairs = [wheel.index[:2] for wheel, kind in zip(sample[1:], kinds(sample)[1:], strict=True) if kind == backend]
        assert len(pairs) == 5
        assert len(set(pairs)) == len(pairs)


def test_every_python_of_a_triton_wheel_gets_its_week() -> None:
    triton = next(cell for cell in CELLS if cell.backend is Backend.TRITON)
    samples = [choose_sample([row_of(LOADED, triton)], PYTHONS, 1, week) for week in range(10)]
    assert {wheel.python for (wheel,) in samples} == set(PYTHONS[triton])


def test_a_ck_wheel_is_installed_for_its_python_and_torch_and_the_fallback_with_those_of_the_newest() -> None:
    newest, _, fallback = choose_sample(NEW, PYTHONS, 3, 0)
    assert (newest.cell, newest.python) == (NEWEST_CELL, NEWEST_CELL.python)
    assert newest.index == ("rocm64", f"torch{NEWEST_CELL.torch.rpartition('.')[0]}", "ck")
    assert fallback.row == FALLBACK
    assert (fallback.cell, fallback.python, fallback.index) == (newest.cell, newest.python, newest.index)


@pytest.mark.parametrize(
    "change",
    [
        {"yanked": "wrong numbers"},
        {"gates": ()},  # unverified
        {"cell": None, "label": None},
        {"cell": NEWEST_CELL.id.replace("torch2", "torch1")},  # a torch that is not in the matrix
    ],
    ids=", ".join,
)
def test_what_no_user_should_install_is_never_chosen(change: dict[str, object]) -> None:
    rows = [row.model_copy(update=change) if row.published == LATER else row for row in NEW]
    chosen = {name for week in range(20) for name in names(choose_sample(rows, PYTHONS, 50, week))}
    (left_out,) = (row.filename for row in rows if row.published == LATER)
    assert chosen == {row.filename for row in rows} - NEVER - {left_out}


def test_no_more_wheels_than_there_are() -> None:
    few = (*NEW[:2], FALLBACK)
    assert sorted(names(choose_sample(few, PYTHONS, 9, 1))) == sorted(row.filename for row in few)
    assert choose_sample([FALLBACK, EINOPS], PYTHONS, 4, 1) == (), "no index lists them"


def test_weeks_begin_on_monday_and_go_on_over_the_new_year() -> None:
    monday = date.fromisocalendar(2026, 53, 1)
    assert count_weeks(monday) == count_weeks(monday + timedelta(days=6)) == count_weeks(monday - timedelta(days=1)) + 1
    assert count_weeks(date.fromisocalendar(2027, 1, 1)) == count_weeks(monday) + 1
