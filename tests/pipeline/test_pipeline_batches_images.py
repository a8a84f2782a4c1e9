"""Which image fits: the disk must hold it, ROCm's torch unless the image has it, and what compiling takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from small_matrix import AMD_TORCH, slim_image, small_matrix
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.matrix.origins import Image
from wheelfactory.pipeline.batches import (
    INSTALLED_TORCH_GB,
    ImageEstimate,
    estimate_images,
    extra_disk_gb,
    fits_on_disk,
    render_image_estimates,
)

SLIM = slim_image("6.4", "22.04", "disk: 22 GB")
OLD = Cell.from_axes("2.8.3", "3.11", "2.5.1", "6.2", Backend.CK)
NEW = Cell.from_axes("2.8.3", "3.11", "2.9.1", "6.4", Backend.CK)


def image(disk: str | None = None) -> Image:
    return small_matrix().rocm["6.4"].images[0].model_copy(update={"disk": disk})


def outlooks(disk_gb: float) -> list[ImageEstimate]:
    return estimate_images(small_matrix(SLIM), {NEW: 2 * 10**9, OLD: 10**9}, disk_gb)


def test_image_and_extra_space_must_be_below_the_disk_size() -> None:
    assert fits_on_disk(image("30 GB"), 5.0, 36) is True
    assert fits_on_disk(image("30 GB"), 5.0, 35) is False
    assert fits_on_disk(image("30 GB"), 5.0, 14) is False
    assert fits_on_disk(image(), 5.0, 14) is None, "of unknown size: if the extra space fits, it may"
    assert fits_on_disk(image(), 14.0, 14) is False


@pytest.mark.parametrize("disk", ["30", "0 GB", "30 GiB", "30.5 GB"])
def test_a_size_without_its_unit_is_refused(disk: str) -> None:
    with pytest.raises(ValueError, match="is not a size on disk"):
        small_matrix(slim_image("6.4", "22.04", f"disk: '{disk}'"))


def test_extra_space_includes_torch_unless_the_image_has_it_from_the_same_builder() -> None:
    matrix, amds = small_matrix(), replace(NEW, amd_torch=True)
    own = matrix.rocm["6.4"].images[-1]
    named = own.model_copy(update={"tag": AMD_TORCH[1]})
    for image, cells, more in (
        (own, [NEW], 0),
        (own, [NEW, replace(NEW, python="3.12")], INSTALLED_TORCH_GB),
        (own, [amds], INSTALLED_TORCH_GB),
        (named, [NEW], INSTALLED_TORCH_GB),
        (named, [amds], 0),
        (own.model_copy(update={"torch": None}), [NEW], INSTALLED_TORCH_GB),
    ):
        assert extra_disk_gb(matrix, image, cells, 2 * 10**9) == more + 2


def test_each_image_is_listed_once_followed_by_its_slim_image() -> None:
    choices = [(outlook.image.tag, outlook.slim, outlook.extra_gb) for outlook in outlooks(60)]
    assert choices == [
        ("rocm/pytorch:torch-and-python", False, 2),
        ("rocm/dev-ubuntu-22.04:6.4-complete", True, INSTALLED_TORCH_GB + 2),
        ("rocm/pytorch:6.2", False, INSTALLED_TORCH_GB + 1),
    ]


@pytest.mark.parametrize(
    ("disk_gb", "verdicts"), [(60, ["unknown", "fits", "unknown"]), (30, ["unknown", "too big", "unknown"])]
)
def test_the_text_block_shows_which_images_fit(disk_gb: float, verdicts: list[str]) -> None:
    head, *lines = render_image_estimates(outlooks(disk_gb), disk_gb)
    assert head == f"images, on a disk of {disk_gb} GB"
    assert [line[:11].strip() for line in lines] == verdicts
    assert lines[0].endswith("  rocm/pytorch:torch-and-python: size unknown, and 2.0 GB more for the build")
    assert lines[1].endswith(
        f"  rocm/dev-ubuntu-22.04:6.4-complete, slim: 22 GB, and {INSTALLED_TORCH_GB + 2} GB more for the build"
    )
