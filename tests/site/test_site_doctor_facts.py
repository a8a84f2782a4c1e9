"""The facts of the matrix that doctor.py embeds, as the doctor reads them."""

from __future__ import annotations

import json

import pytest

from small_matrix import PREVIEW, small_matrix
from wheelfactory.build.products import read_fallback_project
from wheelfactory.core.cell import major_minor
from wheelfactory.core.files import MATRIX
from wheelfactory.core.support import Answer
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.doctor_facts import doctor_facts, support_tables


@pytest.fixture
def matrix() -> Matrix:
    return load_matrix(MATRIX)


@pytest.fixture
def facts(matrix: Matrix) -> DoctorFacts:
    return DoctorFacts.parse(doctor_facts(matrix))


def test_each_release_has_the_window_of_the_matrix(matrix: Matrix, facts: DoctorFacts) -> None:
    for name, release in matrix.flash_attn.items():
        window = facts.find_triton_window(name)
        written = window and f">={window[0][0]}.{window[0][1]}.0,<{window[1][0]}.{window[1][1]}"
        assert written == (release.triton.window if release.triton else None), name


def test_a_post_release_has_the_kernels_of_its_release(facts: DoctorFacts) -> None:
    for release, window in (
        ("2.8.3.post1", ((3, 2), (3, 9))),  # a post-release that the matrix has not
        ("2.7.4", ((3, 1), (3, 9))),  # the release before a post-release
        ("2.8.30", None),  # another release
        ("2.6.3", None),  # one without Triton
    ):
        assert facts.find_triton_window(release) == window


def test_each_torch_has_the_pythons_and_the_triton_of_the_matrix(matrix: Matrix, facts: DoctorFacts) -> None:
    for version, torch in matrix.torch.items():
        known, named = facts.find_torch(major_minor(version)), sorted(map(major_minor, torch.python))
        assert (known.pythons, known.triton_package) == ((named[0], named[-1]), torch.triton_package), version
    assert facts.find_torch((2, 99)) == facts.torches[0], "beyond the matrix the nearest"
    assert facts.find_torch((1, 13)) == facts.torches[-1]


def test_a_torch_is_known_as_soon_as_the_matrix_has_it(matrix: Matrix) -> None:
    newer = matrix.torch["2.14.1"].model_copy(update={"python": ("3.16", "3.9", "3.10")})
    facts = DoctorFacts.parse(doctor_facts(matrix.model_copy(update={"torch": {**matrix.torch, "2.20.0": newer}})))
    assert facts.torches[0].torch == (2, 20)
    assert facts.torches[0].pythons == ((3, 9), (3, 16))


def test_the_first_version_of_an_axis_is_the_newest_wherever_it_stands_in_the_matrix(matrix: Matrix) -> None:
    backwards = matrix.model_copy(
        update={"python": matrix.python[::-1], "rocm": dict(reversed(matrix.rocm.items())), "torch": {}}
    )
    axes = DoctorFacts.parse(doctor_facts(backwards)).support.axes
    assert (axes["python"], axes["rocm"]) == (matrix.python, tuple(matrix.rocm))


def test_the_oldest_torch_of_the_fallback_comes_from_its_project(matrix: Matrix) -> None:
    major, minor = json.loads(doctor_facts(matrix))["fallback_torch"]
    assert list(read_fallback_project().requires) == [f"torch>={major}.{minor}"]


def test_where_only_a_preview_has_code_the_answer_is_may_work_and_a_release_promises_all_the_same() -> None:
    tables = support_tables(small_matrix(PREVIEW))
    # the exclusion of the small matrix leaves Python 3.12 out
    place = {"rocm": "6.4", "torch": "2.9.1", "python": "3.11", "backend": "ck"}
    found = tables.find_support({**place, "gpu": "gfx1100"})
    assert found.answer is Answer.MAY_WORK
    assert any("2.8.4 preview (commit 4a948e9) is not a release of upstream" in reason for reason in found.reasons)
    assert tables.find_support({**place, "gpu": "gfx942"}).answer is Answer.WORKS
