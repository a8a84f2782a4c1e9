"""Images with the same compiler: those of one ROCm release and one distribution."""

from __future__ import annotations

import pytest

from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.images import Image, rocm_release, same_compiler_images
from wheelfactory.matrix.load import load_matrix

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
