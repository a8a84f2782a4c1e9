"""matrix.yaml -> cells and refused combinations: all of them, once, and the ones that this repository promises."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from small_matrix import small_matrix
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BAD_INPUT, InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.expand import Expansion, expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.rules import Combination

CK, TRITON = Backend.CK, Backend.TRITON
SEED = MATRIX.parent / "examples/seed-matrix.yaml"


@pytest.fixture(scope="module")
def default() -> Matrix:
    return load_matrix(MATRIX)


@pytest.fixture(scope="module")
def expansion(default: Matrix) -> Expansion:
    return expand(default)


def built(expansion: Expansion) -> list[Combination]:
    return [
        (cell.flash_attn, python, cell.torch, cell.rocm, cell.backend)
        for cell, pythons in expansion.pythons.items()
        for python in pythons
    ]


def test_every_combination_is_accounted_for_exactly_once() -> None:
    for path in (
        MATRIX,
        SEED,
    ):
        matrix = load_matrix(path)
        expansion = expand(matrix)
        accounted = built(expansion) + [item.combination for item in expansion.excluded]
        axes = (matrix.flash_attn, matrix.python, matrix.torch, matrix.rocm, matrix.backend)
        assert Counter(accounted) == Counter(product(*axes))


def test_every_refused_combination_has_a_reason(expansion: Expansion) -> None:
    assert [item.name for item in expansion.excluded if not item.reason.strip()] == []


def test_a_small_matrix_has_these_cells() -> None:
    expansion = expand(small_matrix())
    assert {cell.id: pythons for cell, pythons in expansion.pythons.items()} == {
        "fa2.8.3-rocm6.4-torch2.9.1-py3-triton": ("3.12", "3.11"),
        "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck": ("3.11",),
        "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck": ("3.11",),
        "fa2.6.3-rocm6.4-torch2.9.1-cp311-ck": ("3.11",),
        "fa2.6.3-rocm6.2-torch2.5.1-cp311-ck": ("3.11",),
    }


def test_cells_come_in_the_order_of_the_file() -> None:
    expansion = expand(small_matrix(("['3.12', '3.11']", "['3.11', '3.12']")))
    assert [cell.id for cell in expansion.cells][:2] == [
        "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
        "fa2.8.3-rocm6.4-torch2.9.1-py3-triton",
    ]


def test_a_refused_combination_is_named_with_its_python() -> None:
    names = {item.name: item.reason for item in expand(small_matrix()).excluded}
    assert names["fa2.6.3-rocm6.4-torch2.9.1-cp311-triton"] == "flash-attn 2.6.3 has no triton backend"
    assert names["fa2.8.3-rocm6.4-torch2.9.1-cp312-ck"] == "the compiler of this image stops"


def test_the_default_matrix_serves_every_python(expansion: Expansion) -> None:
    for backend in Backend:
        pythons = {python for cell, served in expansion.pythons.items() if cell.backend is backend for python in served}
        assert pythons == {"3.10", "3.11", "3.12", "3.13", "3.14"}


def test_triton_cells_are_one_for_each_flash_attn_torch_and_rocm(expansion: Expansion) -> None:
    combinations = {(fa, torch, rocm) for fa, _, torch, rocm, backend in built(expansion) if backend is TRITON}
    cells = [(cell.flash_attn, cell.torch, cell.rocm) for cell in expansion.cells if cell.backend is TRITON]
    assert Counter(cells) == Counter(combinations)


def test_no_cell_has_torch_2_6_0_on_rocm_6_2() -> None:
    for path in (
        MATRIX,
        SEED,
    ):
        cells = {(cell.torch, cell.rocm) for cell in expand(load_matrix(path)).cells}
        assert ("2.5.1", "6.2") in cells
        assert ("2.6.0", "6.2") not in cells


def test_two_cells_of_one_label_are_an_error_that_names_both() -> None:
    for edits, one, other, label in (
        (
            [("'6.4':\n    torch: ['2.9.1']", "'6.2.4':\n    torch: ['2.5.1']")],
            "fa2.8.3-rocm6.2.4-torch2.5.1-cp311-ck",
            "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck",
            "rocm62torch2.5",
        ),
        (
            [("'2.5.1':", "'2.9.0':"), ("torch: ['2.9.1']", "torch: ['2.9.1', '2.9.0']"), ("['2.5.1']", "['2.9.1']")],
            "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
            "fa2.8.3-rocm6.4-torch2.9.0-cp311-ck",
            "rocm64torch2.9",
        ),
    ):
        with pytest.raises(InputError) as refused:
            expand(small_matrix(*edits))
        assert refused.value.exit_code == BAD_INPUT
        assert refused.value.which == f"{one} and {other} are both labelled {label}"
        assert "exclude one of the two" in refused.value.hint


def test_the_backend_keeps_labels_of_one_torch_and_rocm_apart(expansion: Expansion) -> None:
    both = {"fa2.8.3-rocm6.4-torch2.9.1-cp311-ck", "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"}
    assert both <= {cell.id for cell in expansion.cells}


def test_a_cell_gets_the_image_that_matches_best() -> None:
    for torch, python, tag in (
        ("2.9.1", "3.11", "rocm/pytorch:torch-and-python"),
        ("2.9.1", "3.10", "rocm/pytorch:torch"),
        ("2.9.1", "3.12", "rocm/pytorch:torch"),
        ("2.9.1", "3", "rocm/pytorch:torch"),
        ("2.8.0", "3.12", "rocm/pytorch:python"),
        ("2.8.0", "3.13", "rocm/pytorch:first"),
    ):
        assert small_matrix().image(Cell("2.8.3", python, torch, "6.4", CK)).tag == tag


def test_a_cell_has_the_common_archs_of_release_and_torch() -> None:
    for cell, archs in (
        ("fa2.8.3-rocm6.4-torch2.9.1-cp311-ck", ("gfx942",)),
        ("fa2.8.3-rocm6.2-torch2.5.1-cp311-ck", ("gfx90a", "gfx942")),
        ("fa2.8.3-rocm6.4-torch2.9.1-py3-triton", ("gfx942", "gfx1100")),
    ):
        assert small_matrix().archs(Cell.parse(cell)) == archs


def test_no_cell_has_an_arch_that_release_or_torch_lacks(default: Matrix, expansion: Expansion) -> None:
    for cell in expansion.cells:
        release = default.flash_attn[cell.flash_attn].backend(cell.backend)
        assert release
        assert set(default.archs(cell)) == set(release.archs) & set(default.rocm[cell.rocm].archs) != set()


def test_a_torch_that_no_index_has_is_known_and_has_no_cell(default: Matrix, expansion: Expansion) -> None:
    """torch 2.15 is on PyPI, and on no index of wheels for ROCm."""
    (torch,) = set(default.torch) - {cell.torch for cell in expansion.cells}
    assert torch == "2.15.0"
    excluded = [item for item in expansion.excluded if item.combination[0] == "2.8.3" and item.combination[2] == torch]
    reasons = {f"torch {torch} is not on the ROCm {rocm} index; it is on none of the matrix" for rocm in default.rocm}
    assert {item.reason for item in excluded} == reasons


PREVIEW = "2.8.4+git4a948e9"
"""Its C++20 serves torch 2.14, and older torches have a release."""
