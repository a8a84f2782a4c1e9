"""The cell id: each cell has one, and it parses back to the cell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wheelfactory.core.cell import ANY_PYTHON, Backend, Cell
from wheelfactory.core.errors import InputError

CK = Cell("2.8.3", "3.11", "2.9.1", "6.4", Backend.CK)
TRITON = Cell("2.8.3", ANY_PYTHON, "2.9.1", "6.4", Backend.TRITON)

IDS = [
    (CK, "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"),
    (TRITON, "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"),
    (Cell("2.8.4+git4a948e9", "3.12", "2.13.0", "7.2", Backend.CK), "fa2.8.4+git4a948e9-rocm7.2-torch2.13.0-cp312-ck"),
    (Cell("2.7.4.post1", "3.9", "2.14.1", "7.14", Backend.CK), "fa2.7.4.post1-rocm7.14-torch2.14.1-cp39-ck"),
    (Cell("2.8.3", "3.10", "2.9.1", "7.2", Backend.CK, amd_torch=True), "fa2.8.3-rocm7.2-torch2.9.1amd-cp310-ck"),
]

RELEASES = st.from_regex(r"[1-9]\.[1-9]?[0-9](\.post[1-9])?(\+git[0-9a-f]{7})?", fullmatch=True)
VERSIONS = st.from_regex(r"[1-9]?[0-9]\.[1-9]?[0-9](\.[0-9])?(\.post[1-9])?", fullmatch=True)
PYTHONS = st.just(ANY_PYTHON) | st.integers(1, 199).map(lambda minor: f"3.{minor}")
CELLS = st.builds(Cell, RELEASES, PYTHONS, VERSIONS, VERSIONS, st.sampled_from(Backend), st.booleans())


def test_a_cell_has_its_id_and_an_id_its_cell() -> None:
    for cell, text in IDS:
        assert (cell.id, Cell.parse(text)) == (text, cell)


@settings(max_examples=40)
@given(CELLS)
def test_every_id_reads_back_to_its_cell(cell: Cell) -> None:
    assert Cell.parse(cell.id) == cell


def test_other_texts_are_refused_with_an_example() -> None:
    good = "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
    for text in (
        *("", good.removesuffix("-ck"), good.replace("-ck", "-cuda"), good.replace("cp311", "cp27"), f"{good}-ck"),
        *("fa2.8.3-torch2.9.1-rocm6.4-cp311-ck", good.replace("2.8.3", ""), good.replace("2.8.3", "2.8-3")),
        *(f" {good}", f"{good}\n", good.upper()),
    ):
        with pytest.raises(InputError) as refused:
            Cell.parse(text)
        assert refused.value.which == text
        assert good in refused.value.hint


@given(st.text() | st.from_regex(r"\Afa[^-]+-rocm[^-]+-torch[^-]+-(cp3\d+|py3)-(ck|triton)\Z"))
def test_any_text_reads_back_to_itself_or_is_an_input_error(text: str) -> None:
    try:
        cell = Cell.parse(text)
    except InputError:
        return
    assert cell.id == text


def test_each_ck_combination_is_a_cell_and_triton_combinations_of_every_python_are_one() -> None:
    assert Cell.from_axes("2.8.3", "3.11", "2.9.1", "6.4", Backend.CK) == CK
    for python in ("3.10", "3.11", "3.14"):
        assert Cell.from_axes("2.8.3", python, "2.9.1", "6.4", Backend.TRITON) == TRITON
