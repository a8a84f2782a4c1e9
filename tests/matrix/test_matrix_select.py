"""The cells selected by --only and --published, as one matrix, as shards, and as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from small_matrix import small_matrix
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.select import (
    GITHUB_MATRIX_LIMIT,
    explain_selection,
    github_matrix,
    require_in_matrix,
    select_cells,
    unpublished_cells,
)

MATRIX = small_matrix()
EXPANSION = expand(MATRIX)

CK = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-cp311-ck")
TRITON = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-py3-triton")
OLD = Cell.parse("fa2.6.3-rocm6.2-torch2.5.1-cp311-ck")
EXCLUDED = "all selected combinations are excluded"


def test_a_glob_takes_the_cells_whose_id_matches() -> None:
    for only, count in (("*", 5), ("*-triton", 1), ("fa2.6.3-*", 2), ("*-cp311-[!t]*", 4), (CK.id, 1)):
        assert len(select_cells(EXPANSION, only)) == count


def test_a_glob_that_matches_no_cell_is_refused_with_an_example_or_with_the_reasons() -> None:
    for only, what, hint in (
        *((only, "no cell matches", CK.id) for only in ("fa9.9.9-*", "", "FA2.8.3-*", "[")),
        ("fa2.6.3-*-triton", EXCLUDED, "flash-attn 2.6.3 has no triton backend"),
        ("*-rocm6.2-torch2.9.1-*", EXCLUDED, "torch 2.9.1 is not on the ROCm 6.2 index; it is on 6.4"),
        ("fa2.8.3-*-cp312-ck", EXCLUDED, "the compiler of this image stops"),
    ):
        with pytest.raises(InputError) as refused:
            select_cells(EXPANSION, only)
        assert (refused.value.what, refused.value.which) == (what, only)
        assert hint in refused.value.hint


def test_a_cell_of_the_matrix_is_given_back() -> None:
    for cell, python in ((CK, None), (CK, "3.11"), (TRITON, "3.12"), (TRITON, "3")):
        assert require_in_matrix(EXPANSION, cell, python) == cell


def test_a_refused_cell_is_told_with_its_reason() -> None:
    """Which reason is given against a Triton cell depends on the Python."""
    for cell, python, reason in (
        ("fa2.8.3-rocm6.4-torch2.9.1-cp312-ck", None, "the compiler of this image stops"),
        ("fa2.8.3-rocm6.2-torch2.5.1-py3-triton", "3.11", "torch 2.5.1 brings Triton 3.1.0; the kernels of"),
        ("fa2.8.3-rocm6.2-torch2.5.1-py3-triton", "3.12", "torch 2.5.1 for ROCm has no Python 3.12; it has 3.11, 3.10"),
    ):
        with pytest.raises(InputError) as refused:
            require_in_matrix(EXPANSION, Cell.parse(cell), python)
        assert (refused.value.what, refused.value.which) == ("this combination cannot work", cell)
        assert refused.value.hint.startswith(reason)
    with pytest.raises(InputError) as refused:
        require_in_matrix(EXPANSION, replace(CK, amd_torch=True))
    assert refused.value.hint == "AMD's torch 2.9.1 with Python 3.11 is in no image of ROCm 6.4 in matrix.yaml"


def test_a_version_that_the_matrix_does_not_have_is_named_with_those_it_has() -> None:
    for cell, python, what, known in (
        ("fa9.9.9-rocm6.4-torch2.9.1-cp311-ck", None, "flash-attn 9.9.9", "2.8.3"),
        ("fa2.8.3-rocm6.4-torch2.9.1-cp313-ck", None, "Python 3.13", "3.11"),
        ("fa2.8.3-rocm6.4-torch2.9-cp311-ck", None, "torch 2.9", "2.9.1"),
        ("fa2.8.3-rocm6.9-torch2.9.1-cp311-ck", None, "ROCm 6.9", "6.4"),
        (TRITON.id, "3.13", "Python 3.13", "3.11"),
    ):
        with pytest.raises(InputError) as refused:
            require_in_matrix(EXPANSION, Cell.parse(cell), python)
        assert refused.value.what == f"no {what} in the matrix"
        assert known in refused.value.hint.removeprefix("known: ").split(", ")


def test_published_cells_are_not_built_again() -> None:
    assert unpublished_cells((CK, TRITON, OLD), {TRITON.id, "fa2.5.9-rocm5.7-torch2.1.0-cp39-ck"}) == (CK, OLD)


def test_an_entry_holds_a_cell_as_strings() -> None:
    (entry,) = json.loads(github_matrix(MATRIX, [CK]))["include"]
    versions = {"flash-attn-version": "2.8.3", "python-version": "3.11", "torch-version": "2.9.1"}
    others = {"rocm-version": "6.4", "backend": "ck", "image": "rocm/pytorch:torch-and-python"}
    assert entry == {"id": CK.id, **versions, **others}


def test_shards_hold_at_most_what_github_takes_and_together_all_cells() -> None:
    for cells, sizes in ((1, [1]), (GITHUB_MATRIX_LIMIT + 1, [256, 1])):
        many = [Cell(f"2.8.{number}", "3.11", "2.9.1", "6.4", Backend.CK) for number in range(cells)]
        shards = json.loads(github_matrix(MATRIX, many, shards=True))["include"]
        groups = [json.loads(shard["cells"])["include"] for shard in shards]
        assert [shard["shard"] for shard in shards] == [str(number) for number in range(len(sizes))]
        assert [len(group) for group in groups] == sizes
        assert [entry for group in groups for entry in group] == json.loads(github_matrix(MATRIX, many))["include"]


def test_an_explanation_says_what_became_of_each_cell_and_ends_with_the_sums() -> None:
    assert explain_selection(EXPANSION, select_cells(EXPANSION, "*"), frozenset(), "*")[-2:] == [
        "ck: 16 combinations = 4 in 4 cells + 12 refused",
        "triton: 16 combinations = 2 in 1 cell + 14 refused",
    ]
    selected = select_cells(EXPANSION, "fa2.8.3-*")
    lines = explain_selection(EXPANSION, unpublished_cells(selected, {CK.id}), {CK.id}, "fa2.8.3-*")
    assert set(lines) >= {
        "published fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
        "merged    fa2.8.3-rocm6.4-torch2.9.1-py3-triton: one wheel for Python 3.11, 3.12",
        "built     fa2.8.3-rocm6.2-torch2.5.1-cp311-ck",
        f"left out  {len(EXPANSION.cells) - len(selected)} cells that do not match --only fa2.8.3-*",
        "refused   fa2.8.3-rocm6.4-torch2.9.1-cp312-ck: the compiler of this image stops",
    }
