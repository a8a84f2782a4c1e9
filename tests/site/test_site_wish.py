"""What people write of their machine, read as they mean it; what may mean two things is asked back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from small_matrix import small_matrix
from wheelfactory.core.checkout import MATRIX
from wheelfactory.core.gpus import PRODUCTS, product
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.request import Field
from wheelfactory.site.wish import Reading, read_wish

SMALL = small_matrix()


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(MATRIX)


def read(matrix: Matrix, field: Field, text: str, torch: str = "2.9.1") -> Reading:
    return read_wish({Field.TORCH: torch, field: text}, matrix).readings[field]


@pytest.mark.parametrize(
    ("text", "torch", "rocm"),
    [
        ("2.9.1", ("2.9.1",), None),
        ("2.9.1+rocm6.4", ("2.9.1",), ("6.4",)),
        ("torch 2.9.1+rocm6.4", ("2.9.1",), ("6.4",)),
        ("torch==2.9.1", ("2.9.1",), None),
        ("PyTorch v2.9.1 for ROCm 6.4.2", ("2.9.1",), ("6.4",)),
        ("2.9", ("2.9.1",), None),
        ("2.9.0", ("2.9.1",), None),
        ("2.9.1 (Python 3.11.7)", ("2.9.1",), None),
        ("2.13.0+rocm7.2.1.gitabc12345", ("2.13.0",), ("7.2",)),
        ("2.5.0a0+git1234567", ("2.5.1",), None),
        ("2.10.0.dev20260101+rocm7.1", ("2.10.0",), ("7.1",)),
        ("2.14.1+rocm7.14", ("2.14.1",), ("7.14",)),
        ("2.6.0+rocm6.2.4", ("2.6.0",), ("6.2.4", "6.2")),
        ("2.9.1+rocm64", ("2.9.1",), ("6.4",)),
    ],
)
def test_torch_tells_itself_and_its_rocm(
    matrix: Matrix, text: str, torch: tuple[str, ...], rocm: tuple[str, ...] | None
) -> None:
    readings = read_wish({Field.TORCH: text}, matrix).readings
    assert (readings[Field.TORCH].values, readings[Field.ROCM].values) == (torch, rocm)
    assert not any(reading.trouble for reading in readings.values())


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("", "it is needed"),
        ("any", "it is needed"),
        ("the newest", "no version is in it"),
        ("2", "no version is in it"),
        ("2.9.1x", "no version is in it"),
        ("2.9.1 or 2.8.0", "more than one version"),
        ("3.1.4 or 3.2.4", "more than one version"),
        ("2.9.1+cu128", "not one for ROCm"),
        ("2.9.1+cpu", "not one for ROCm"),
        ("2.9.1 CUDA 12.8", "not one for ROCm"),
        ("@admin <script>", "no version is in it"),
        ("\u0662.\u0669.\u0661", "no version is in it"),
    ],
)
def test_a_torch_that_is_not_clear_is_asked_back(matrix: Matrix, text: str, trouble: str) -> None:
    assert trouble in read_wish({Field.TORCH: text}, matrix).readings[Field.TORCH].trouble


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("6.4", ("6.4",)),
        ("ROCm 6.4.1", ("6.4",)),
        ("rocm-7.2.4", ("7.2",)),
        ("6.2.4", ("6.2.4", "6.2")),
        ("7.14", ("7.14",)),
        ("HIP 6.4.43482-0f2d60242", ("6.4",)),
        ("ROCm 6.4.1, HIP 6.4.43483", ("6.4",)),
        ("any", None),
    ],
)
def test_rocm_is_read_by_major_and_minor(matrix: Matrix, text: str, values: tuple[str, ...] | None) -> None:
    assert read(matrix, Field.ROCM, text) == Reading(values)


@pytest.mark.parametrize(
    ("text", "trouble"), [("6", "no version"), ("710", "no version"), ("6.4 7.2", "more than one")]
)
def test_a_rocm_that_is_not_clear_is_asked_back(matrix: Matrix, text: str, trouble: str) -> None:
    assert trouble in read(matrix, Field.ROCM, text).trouble


def test_two_fields_that_name_different_rocm_are_asked_back(matrix: Matrix) -> None:
    assert "another ROCm" in read(matrix, Field.ROCM, "7.2", torch="2.9.1+rocm6.4").trouble
    assert read(matrix, Field.ROCM, "6.4.3", torch="2.9.1+rocm6.4") == Reading(("6.4",))


@pytest.mark.parametrize("text", ["3.11", "Python 3.11.7", "cp311", "py311", "311", "CPython 3.11", "3.11 (cp311)"])
def test_python_is_read_by_major_and_minor(matrix: Matrix, text: str) -> None:
    assert read(matrix, Field.PYTHON, text) == Reading(("3.11",))


@pytest.mark.parametrize("text", ["3", "3.13t", "3.11 or cp312", "3.11, 3.12"])
def test_a_python_that_is_not_clear_is_asked_back(matrix: Matrix, text: str) -> None:
    assert read(matrix, Field.PYTHON, text).trouble


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("2.8.3", ("2.8.3",)),
        ("v2.8.3", ("2.8.3",)),
        ("flash-attn==2.8.3", ("2.8.3",)),
        ("flash attention 2.6.3", ("2.6.3",)),
        ("fa2.6.3", ("2.6.3",)),
        ("2.8.3.post2", ("2.8.3.post2",)),
        ("2.8.3post2", ("2.8.3.post2",)),
        ("2.8", ("2.8.3.post2", "2.8.3")),
        ("2.8.3+rocm64torch2.9", ("2.8.3",)),
        ("latest", None),
    ],
)
def test_flash_attn_is_that_very_release(matrix: Matrix, text: str, values: tuple[str, ...] | None) -> None:
    assert read(matrix, Field.FLASH_ATTN, text) == Reading(values)


@pytest.mark.parametrize(
    ("field", "text", "unknown"),
    [
        (Field.TORCH, "2.15.0", "2.15.0"),
        (Field.ROCM, "5.7", "5.7"),
        (Field.PYTHON, "Python 3.9", "3.9"),
        (Field.PYTHON, "3.1", "3.1"),
        (Field.FLASH_ATTN, "2.8.1", "2.8.1"),
        (Field.FLASH_ATTN, "2.8.3.post1", "2.8.3.post1"),
    ],
)
def test_a_version_that_the_matrix_lacks_is_known_as_such(
    matrix: Matrix, field: Field, text: str, unknown: str
) -> None:
    torch = text if field is Field.TORCH else "2.9.1"
    assert read(matrix, field, text, torch) == Reading((), unknown=unknown)


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("gfx942", "gfx942"),
        ("gfx90a:sramecc+:xnack-", "gfx90a"),
        ("AMD Instinct MI300X", "gfx942"),
        ("MI300", "gfx942"),
        ("8x MI325X", "gfx942"),
        ("mi250x", "gfx90a"),
        ("MI350X", "gfx950"),
        ("RX 7900 XTX", "gfx1100"),
        ("Radeon 7900XTX", "gfx1100"),
        ("RX 7900 GRE", "gfx1100"),
        ("Radeon PRO W7900", "gfx1100"),
        ("RX 9070 XT", "gfx1201"),
        ("9060XT", "gfx1200"),
        ("Radeon VII", "gfx906"),
        ("Strix Halo", "gfx1151"),
        ("Ryzen AI Max+ 395", "gfx1151"),
        ("Radeon 780M", "gfx1103"),
    ],
)
def test_a_gpu_is_known_by_its_arch_and_by_its_name(matrix: Matrix, text: str, arch: str) -> None:
    assert read(matrix, Field.GPU, text) == Reading((arch,))


@pytest.mark.parametrize(
    "text", ["RX 6800M", "RTX 4090", "Radeon", "MI", "gfx9", "gfx942 or gfx90a", "MI300X, RX 7900"]
)
def test_a_gpu_that_is_not_clear_is_asked_back(matrix: Matrix, text: str) -> None:
    assert read(matrix, Field.GPU, text).trouble


@pytest.mark.parametrize("arch", PRODUCTS)
def test_every_product_is_known_by_each_of_its_names(matrix: Matrix, arch: str) -> None:
    for name in PRODUCTS[arch]:
        reading = read(matrix, Field.GPU, name)
        assert reading.values == (arch,) or reading.trouble, name
    assert read(matrix, Field.GPU, product(arch)) == Reading((arch,))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("ck", ("ck",)),
        ("Composable Kernel", ("ck",)),
        ("Triton", ("triton",)),
        ("either", None),
        ("ck, triton", ("ck", "triton")),
    ],
)
def test_a_backend_is_known_by_its_name(matrix: Matrix, text: str, values: tuple[str, ...] | None) -> None:
    assert read(matrix, Field.BACKEND, text) == Reading(values)


def test_another_backend_is_asked_back_and_one_that_the_matrix_lacks_is_told() -> None:
    without = small_matrix(("backend: [ck, triton]", "backend: [ck]"))
    assert read(without, Field.BACKEND, "cuda").trouble
    assert read(without, Field.BACKEND, "triton") == Reading((), unknown="triton")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(Field), st.text(st.sampled_from("0123456789. +-vtorchmpy36gfxi@<\n\u0663"), max_size=200))
def test_nothing_of_a_text_is_kept_but_digits_and_dots(field: Field, text: str) -> None:
    for reading in read_wish({field: text}, SMALL).readings.values():
        assert set(reading.unknown) <= set("0123456789.posttriton")
        assert len(reading.unknown) <= 40
