"""Estimate which build images, regular and slim, fit on a disk. GB are 10^9 bytes, as in matrix.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wheelfactory.core.cell import Cell
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.origins import Image

# ROCm's torch: 13 installed (pytorch/pytorch#129165, torch 2.3.1+rocm6.0 with its requirements), and 5 for the wheel,
# which pip caches (5.1 for 2.10.0+rocm7.1). Reported, not measured here
INSTALLED_TORCH_GB = 18.0


def extra_disk_gb(matrix: Matrix, image: Image, cells: Iterable[Cell], kernel_bytes: int) -> float:
    """Disk space that building these cells needs besides the image: torch, unless the image has it, and the kernels.

    `kernel_bytes` is the disk space of the compile, from the kernel set's estimate.
    """
    has_torch = all(matrix.has_torch(cell, image) for cell in cells)
    return (0.0 if has_torch else INSTALLED_TORCH_GB) + kernel_bytes / 1000**3


def fits_on_disk(image: Image, extra_gb: float, disk_gb: float) -> bool | None:
    """Whether an image and `extra_gb` fit on a disk of `disk_gb`, with space left; None if the image's size is unknown
    and decides.
    """
    if extra_gb >= disk_gb:
        return False
    return None if image.disk_gb is None else image.disk_gb + extra_gb < disk_gb


@dataclass(frozen=True)
class ImageEstimate:
    """One image, the extra GB that its cells need, and whether both fit on the disk (None: unknown)."""

    image: Image
    slim: bool
    extra_gb: float
    fits: bool | None

    @property
    def to_json(self) -> dict[str, Any]:
        """The estimate as JSON."""
        return {
            "tag": self.image.tag,
            "slim": self.slim,
            "disk-gb": self.image.disk_gb,
            "extra-gb": round(self.extra_gb, 2),
            "fits": self.fits,
        }


def estimate_images(matrix: Matrix, kernel_bytes: Mapping[Cell, int], disk_gb: float) -> list[ImageEstimate]:
    """Estimate the regular and slim images of these cells against a disk of `disk_gb`.

    `kernel_bytes` is the disk space that compiling each cell's kernels takes. Triton cells need no image.
    """
    cells: dict[tuple[Image, bool], list[Cell]] = {}
    for cell in kernel_bytes:
        for slim in (False, True):
            image = matrix.image(cell, slim=slim)
            if slim == (image is matrix.rocm[cell.rocm].slim):
                cells.setdefault((image, slim), []).append(cell)
    estimates = []
    for (image, slim), members in cells.items():
        beside = extra_disk_gb(matrix, image, members, max(kernel_bytes[cell] for cell in members))
        estimates.append(ImageEstimate(image, slim, beside, fits_on_disk(image, beside, disk_gb)))
    return estimates


def render_image_estimates(estimates: Sequence[ImageEstimate], disk_gb: float, *, each: bool = True) -> Iterator[str]:
    """Render how many images fit, or with `each` a line for every image; empty if there are none."""
    if not estimates:
        return
    if not each:
        unknown = sum(estimate.fits is None for estimate in estimates)
        more = f", {unknown} of unknown size" if unknown else ""
        fitting = sum(estimate.fits is True for estimate in estimates)
        yield f"images       {fitting} of {len(estimates)} fit on a disk of {disk_gb:g} GB{more}"
        return
    yield f"images, on a disk of {disk_gb:g} GB"
    for estimate in estimates:
        verdict = {True: "fits", False: "too big", None: "unknown"}[estimate.fits]
        size = f"{estimate.image.disk_gb} GB" if estimate.image.disk_gb else "size unknown"
        slim = ", slim" if estimate.slim else ""
        yield f"  {verdict:<9}  {estimate.image.tag}{slim}: {size}, and {estimate.extra_gb:.1f} GB more for the build"
