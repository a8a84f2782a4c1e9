"""Kernel sets: which cells share their kernels, and what a set is called."""

from __future__ import annotations

import pytest

from small_matrix import small_matrix
from wheelfactory.cell import Backend
from wheelfactory.checkout import MATRIX
from wheelfactory.errors import InputError
from wheelfactory.kernels.kernel_set import kernel_sets, require_set
from wheelfactory.matrix import expand, load_matrix

SMALL = small_matrix()
CELLS = expand(SMALL).cells
SETS = kernel_sets(SMALL, CELLS)


def test_the_sets_of_the_small_matrix() -> None:
    assert {kernel_set.id: [cell.id for cell in kernel_set.cells] for kernel_set in SETS} == {
        "fa2.8.3-rocm6.4-gfx942-cxx11": ["fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"],
        "fa2.8.3-rocm6.2-gfx90a_gfx942-precxx11": ["fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"],
        "fa2.6.3-rocm6.4-gfx942-cxx11": ["fa2.6.3-rocm6.4-torch2.9.1-cp311-ck"],
        "fa2.6.3-rocm6.2-gfx90a_gfx942-precxx11": ["fa2.6.3-rocm6.2-torch2.5.1-cp311-ck"],
    }


def test_every_ck_cell_is_in_one_set_and_no_other_cell_in_any() -> None:
    matrix = load_matrix(MATRIX)
    cells = expand(matrix).cells
    sets = kernel_sets(matrix, cells)
    shared = [cell for kernel_set in sets for cell in kernel_set.cells]
    assert sorted(shared, key=str) == sorted((cell for cell in cells if cell.backend is Backend.CK), key=str)
    assert len({kernel_set.id for kernel_set in sets}) == len(sets) < len(shared) / 5


def test_the_cells_of_a_set_differ_in_torch_and_python_alone() -> None:
    matrix = load_matrix(MATRIX)
    for kernel_set in kernel_sets(matrix, expand(matrix).cells):
        for cell in kernel_set.cells:
            assert (cell.flash_attn, cell.rocm) == (kernel_set.flash_attn, kernel_set.rocm)
            assert matrix.archs(cell) == kernel_set.archs
            assert matrix.torch[cell.torch].cxx11_abi is kernel_set.cxx11_abi


def test_one_rocm_with_two_abis_has_two_sets() -> None:
    matrix = load_matrix(MATRIX)
    names = [item.id for item in kernel_sets(matrix, expand(matrix).cells) if item.id.startswith("fa2.8.3-rocm6.1-")]
    assert names == ["fa2.8.3-rocm6.1-gfx90a_gfx942-cxx11", "fa2.8.3-rocm6.1-gfx90a_gfx942-precxx11"]


def test_triton_cells_need_no_kernels() -> None:
    assert kernel_sets(SMALL, [cell for cell in CELLS if cell.backend is Backend.TRITON]) == ()


def test_a_set_is_found_by_its_id() -> None:
    assert [require_set(SETS, kernel_set.id) for kernel_set in SETS] == list(SETS)


def test_an_unknown_id_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="no such kernel set: fa9") as refused:
        require_set(SETS, "fa9")
    assert all(kernel_set.id in refused.value.hint for kernel_set in SETS)


def test_without_sets_the_refusal_says_so() -> None:
    with pytest.raises(InputError) as refused:
        require_set((), "fa9")
    assert refused.value.hint == "known: none, no CK cell is selected"
