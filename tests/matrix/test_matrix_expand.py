"""The cells of a matrix: which combinations are built or refused, which are selected, and the JSON for GitHub."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from small_matrix import AMD_TORCH, small_matrix
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.core.label import Label
from wheelfactory.matrix.expand import (
    GITHUB_MATRIX_LIMIT,
    Expansion,
    expand,
    explain_selection,
    github_matrix,
    require_in_matrix,
    select_cells,
    unpublished_cells,
)
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.origins import Image, rocm_release, same_compiler_images
from wheelfactory.matrix.rules import Combination

CK, TRITON = Backend.CK, Backend.TRITON
SEED = MATRIX.parent / "examples/seed-matrix.yaml"


def built(expansion: Expansion) -> list[Combination]:
    return [
        (cell.flash_attn, python, cell.torch, cell.rocm, cell.backend)
        for cell, pythons in expansion.pythons.items()
        for python in pythons
        if not cell.amd_torch
    ]


def test_every_combination_is_accounted_for_exactly_once() -> None:
    for path in (MATRIX, SEED):
        matrix = load_matrix(path)
        expansion = expand(matrix)
        accounted = built(expansion) + [item.combination for item in expansion.excluded if not item.amd_torch]
        axes = (matrix.flash_attn, matrix.python, matrix.torch, matrix.rocm, matrix.backend)
        assert Counter(accounted) == Counter(product(*axes))


def test_a_small_matrix_has_these_cells() -> None:
    expansion = expand(small_matrix())
    assert {cell.id: pythons for cell, pythons in expansion.pythons.items()} == {
        "fa2.8.3-rocm6.4-torch2.9.1-py3-triton": ("3.12", "3.11"),
        "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck": ("3.11",),
        "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck": ("3.11",),
        "fa2.6.3-rocm6.4-torch2.9.1-cp311-ck": ("3.11",),
        "fa2.6.3-rocm6.2-torch2.5.1-cp311-ck": ("3.11",),
    }
    other_order = expand(small_matrix(("['3.12', '3.11']", "['3.11', '3.12']")))
    assert [cell.backend for cell in other_order.cells][:2] == [CK, TRITON], "in the order of the file"


def test_a_refused_combination_is_named_with_its_python() -> None:
    names = {item.name: item.reason for item in expand(small_matrix()).excluded}
    assert names["fa2.6.3-rocm6.4-torch2.9.1-cp311-triton"] == "flash-attn 2.6.3 has no triton backend"
    assert names["fa2.8.3-rocm6.4-torch2.9.1-cp312-ck"] == "the compiler of this image stops"


def test_two_cells_of_one_label_are_an_error_that_names_both() -> None:
    with pytest.raises(InputError) as refused:
        expand(small_matrix(("'6.4':\n    torch: ['2.9.1']", "'6.2.4':\n    torch: ['2.5.1']")))
    one, other = "fa2.8.3-rocm6.2.4-torch2.5.1-cp311-ck", "fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"
    assert refused.value.which == f"{one} and {other} are both labelled rocm62torch2.5"
    assert "exclude one of the two" in refused.value.hint


def test_each_image_of_amd_is_a_cell_for_its_own_torch_and_python() -> None:
    matrix = small_matrix(AMD_TORCH)
    expansion = expand(matrix)
    cell, older = (cell for cell in expansion.cells if cell.amd_torch)
    assert older == replace(cell, flash_attn="2.6.3")
    assert (cell.id, str(Label.from_cell(cell))) == ("fa2.8.3-rocm6.4-torch2.9.1amd-cp311-ck", "rocm64torch2.9amd")
    assert matrix.image(cell).tag == AMD_TORCH[1]
    assert expansion.cells == (*expand(small_matrix()).cells, cell, older)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"python": "3.12"}, "the compiler of this image stops"),
        ({"torch": "2.4.0"}, "matrix.yaml has no facts about torch 2.4.0, which is in AMD's image"),
        ({"rocm_path": None}, "AMD's image of torch 2.9.1 for ROCm 6.4 has no compiler"),
        ({"tag": AMD_TORCH[1].replace("6.4.4", "6.4.3")}, "an older release of ROCm 6.4 than that of its kernels"),
    ],
)
def test_an_image_that_cannot_be_used_is_excluded_with_its_reason(changes: Mapping[str, object], reason: str) -> None:
    matrix = small_matrix(AMD_TORCH)
    rocm = matrix.rocm["6.4"]
    newest = rocm.images[-1].model_copy(update={"python": "3.10"})  # a Python that the matrix does not have
    images = (newest, rocm.images[-1].model_copy(update=changes))
    changed = matrix.model_copy(update={"rocm": {"6.4": rocm.model_copy(update={"images": images})}})
    expansion = expand(changed)
    assert not any(cell.amd_torch for cell in expansion.cells)
    reasons = [item.reason for item in expansion.excluded if item.amd_torch and item.combination[0] == "2.8.3"]
    assert [found.startswith(reason) for found in reasons] == [True]


def test_a_cell_gets_the_image_that_matches_best() -> None:
    for torch, python, tag in (
        ("2.9.1", "3.11", "rocm/pytorch:torch-and-python"),
        ("2.9.1", "3.10", "rocm/pytorch:torch"),
        ("2.9.1", "3.12", "rocm/pytorch:torch"),
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


GLIBC = {"22.04": "2.35", "24.04": "2.39"}


def image(rocm: str, system: str = "22.04", torch: str = "2.8.0") -> Image:
    """AMD's image with this ROCm; its tag names no ROCm if `rocm` is empty."""
    says = f"rocm{rocm}_ubuntu{system}_py3.10_pytorch_release_{torch}" if rocm else f"latest-{system}"
    named = {"tag": f"rocm/pytorch:{says}", "distribution": f"ubuntu{system}", "glibc": GLIBC[system], "torch": torch}
    paths = {"python": "3.10", "python-path": "/opt/venv/bin/python", "rocm-path": "/opt/rocm"}
    return Image.model_validate({**named, **paths, "source": "made by the tests"})


DEBIAN = image("7.1").model_copy(update={"distribution": "debian9", "glibc": "2.9"})


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        pytest.param([image("7.1"), image("7.1.1"), image("7.1")], [1], id="the newest release"),
        pytest.param([image("7.1.9"), image("7.1.10")], [1], id="as numbers"),
        pytest.param([image("7.1.1", torch="2.9.1"), image("7.1.1"), image("7.1")], [0, 1], id="each torch of it"),
        pytest.param([image("7.1.1", "24.04"), image("7.1.1")], [1], id="the oldest system of it"),
        pytest.param([image("7.1"), DEBIAN], [1], id="its glibc as a number"),
        pytest.param([image("7.1.1", "24.04"), image("7.1")], [0], id="the release before the system"),
        pytest.param([image(""), image("7.1")], [1], id="not what says nothing"),
        pytest.param([image(""), image("", "24.04")], [0, 1], id="all where none says anything"),
    ],
)
def test_which_images_have_the_one_compiler(images: list[Image], expected: list[int]) -> None:
    assert same_compiler_images(images) == tuple(images[number] for number in expected)


def test_a_registry_with_a_port_is_no_tag() -> None:
    mirrored = image("7.1.1").model_copy(update={"tag": f"mirror:5000/{image('7.1.1').tag}"})
    assert rocm_release(mirrored) == (7, 1, 1)


def test_all_cells_of_a_rocm_have_one_release_and_one_system() -> None:
    matrix = load_matrix(MATRIX)
    found: dict[str, set[tuple[object, ...]]] = {}
    for cell in expand(matrix).cells:
        if cell.amd_torch:
            continue  # it links what the others compile
        chosen = matrix.image(cell)
        found.setdefault(cell.rocm, set()).add((rocm_release(chosen), chosen.distribution, chosen.glibc))
    assert {rocm: len(compilers) for rocm, compilers in found.items()} == dict.fromkeys(matrix.rocm, 1)
    assert all(release for (release, *_), *_ in found.values())


def test_a_wheel_of_the_matrix_runs_on_ubuntu_22_04_where_amd_has_an_image_of_it() -> None:
    matrix = load_matrix(MATRIX)
    for cell in expand(matrix).cells:
        compilers = same_compiler_images(matrix.rocm[cell.rocm].images)
        if any(image.glibc == "2.35" for image in compilers) and not cell.amd_torch:
            assert matrix.image(cell).glibc == "2.35", cell.id


SMALL = small_matrix()
EXPANSION = expand(SMALL)

CK_CELL = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-cp311-ck")
TRITON_CELL = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-py3-triton")
OLD = Cell.parse("fa2.6.3-rocm6.2-torch2.5.1-cp311-ck")
EXCLUDED = "all selected combinations are excluded"


def test_a_glob_takes_the_cells_whose_id_matches() -> None:
    for only, count in (("*", 5), ("*-triton", 1), ("fa2.6.3-*", 2), ("*-cp311-[!t]*", 4), (CK_CELL.id, 1)):
        assert len(select_cells(EXPANSION, only)) == count


def test_a_glob_that_matches_no_cell_is_refused_with_an_example_or_with_the_reasons() -> None:
    for only, what, hint in (
        *((only, "no cell matches", CK_CELL.id) for only in ("fa9.9.9-*", "", "FA2.8.3-*", "[")),
        ("fa2.6.3-*-triton", EXCLUDED, "flash-attn 2.6.3 has no triton backend"),
        ("*-rocm6.2-torch2.9.1-*", EXCLUDED, "torch 2.9.1 is not on the ROCm 6.2 index; it is on 6.4"),
        ("fa2.8.3-*-cp312-ck", EXCLUDED, "the compiler of this image stops"),
    ):
        with pytest.raises(InputError) as refused:
            select_cells(EXPANSION, only)
        assert (refused.value.what, refused.value.which) == (what, only)
        assert hint in refused.value.hint


def test_a_cell_of_the_matrix_is_given_back() -> None:
    for cell, python in ((CK_CELL, None), (CK_CELL, "3.11"), (TRITON_CELL, "3.12"), (TRITON_CELL, "3")):
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
        require_in_matrix(EXPANSION, replace(CK_CELL, amd_torch=True))
    assert refused.value.hint == "AMD's torch 2.9.1 with Python 3.11 is in no image of ROCm 6.4 in matrix.yaml"


def test_a_version_that_the_matrix_does_not_have_is_named_with_those_it_has() -> None:
    for cell, python, what, known in (
        ("fa9.9.9-rocm6.4-torch2.9.1-cp311-ck", None, "flash-attn 9.9.9", "2.8.3"),
        ("fa2.8.3-rocm6.4-torch2.9.1-cp313-ck", None, "Python 3.13", "3.11"),
        ("fa2.8.3-rocm6.4-torch2.9-cp311-ck", None, "torch 2.9", "2.9.1"),
        ("fa2.8.3-rocm6.9-torch2.9.1-cp311-ck", None, "ROCm 6.9", "6.4"),
        (TRITON_CELL.id, "3.13", "Python 3.13", "3.11"),
    ):
        with pytest.raises(InputError) as refused:
            require_in_matrix(EXPANSION, Cell.parse(cell), python)
        assert refused.value.what == f"no {what} in the matrix"
        assert known in refused.value.hint.removeprefix("known: ").split(", ")


def test_published_cells_are_not_built_again() -> None:
    assert unpublished_cells((CK_CELL, TRITON_CELL, OLD), {TRITON_CELL.id, "fa2.5.9-rocm5.7-torch2.1.0-cp39-ck"}) == (
        CK_CELL,
        OLD,
    )


def test_an_entry_holds_a_cell_as_strings() -> None:
    (entry,) = json.loads(github_matrix(SMALL, [CK_CELL]))["include"]
    versions = {"flash-attn-version": "2.8.3", "python-version": "3.11", "torch-version": "2.9.1"}
    others = {"rocm-version": "6.4", "backend": "ck", "image": "rocm/pytorch:torch-and-python"}
    assert entry == {"id": CK_CELL.id, **versions, **others}


def test_shards_hold_at_most_what_github_takes_and_together_all_cells() -> None:
    for cells, sizes in ((1, [1]), (GITHUB_MATRIX_LIMIT + 1, [256, 1])):
        many = [Cell(f"2.8.{number}", "3.11", "2.9.1", "6.4", Backend.CK) for number in range(cells)]
        shards = json.loads(github_matrix(SMALL, many, shards=True))["include"]
        groups = [json.loads(shard["cells"])["include"] for shard in shards]
        assert [shard["shard"] for shard in shards] == [str(number) for number in range(len(sizes))]
        assert [len(group) for group in groups] == sizes
        assert [entry for group in groups for entry in group] == json.loads(github_matrix(SMALL, many))["include"]


def test_an_explanation_says_what_became_of_each_cell_and_ends_with_the_sums() -> None:
    assert explain_selection(EXPANSION, select_cells(EXPANSION, "*"), frozenset(), "*")[-2:] == [
        "ck: 16 combinations = 4 in 4 cells + 12 refused",
        "triton: 16 combinations = 2 in 1 cell + 14 refused",
    ]
    selected = select_cells(EXPANSION, "fa2.8.3-*")
    lines = explain_selection(EXPANSION, unpublished_cells(selected, {CK_CELL.id}), {CK_CELL.id}, "fa2.8.3-*")
    assert set(lines) >= {
        "published fa2.8.3-rocm6.4-torch2.9.1-cp311-ck",
        "merged    fa2.8.3-rocm6.4-torch2.9.1-py3-triton: one wheel for Python 3.11, 3.12",
        "built     fa2.8.3-rocm6.2-torch2.5.1-cp311-ck",
        f"left out  {len(EXPANSION.cells) - len(selected)} cells that do not match --only fa2.8.3-*",
        "refused   fa2.8.3-rocm6.4-torch2.9.1-cp312-ck: the compiler of this image stops",
    }
