"""Compiled cells -> the images that they can be built in, the slim ones too, and which of them a disk holds.

GB are 10^9 bytes, as in matrix.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wheelfactory.core.cell import Cell
from wheelfactory.matrix.facts import Image, Matrix

INSTALLED_TORCH_GB = 18.0
"""ROCm's torch where it is installed: 13 unpacked (pytorch/pytorch#129165, torch 2.3.1+rocm6.0 with what it requires),
and 5 for its wheel, which pip has at the same time and keeps (2.10.0+rocm7.1 has 5.1). None was measured here."""


def extra_disk_gb(image: Image, cells: Iterable[Cell], kernel_bytes: int) -> float:
    """What building these cells in an image needs beside it: their torch, unless the image has it, and the kernels.

    `kernel_bytes` is the disk that compiling them takes, as the forecast of a kernel set has it.
    """
    has_torch = all((image.torch, image.python) == (cell.torch, cell.python) for cell in cells)
    return (0.0 if has_torch else INSTALLED_TORCH_GB) + kernel_bytes / 1000**3


def fits_on_disk(image: Image, beside: float, disk_gb: float) -> bool | None:
    """Whether a disk of `disk_gb` holds an image and what is `beside` it; None where the size of the image decides
    and nobody has said it. What fills the disk to its last byte does not fit.
    """
    if beside >= disk_gb:
        return False
    return None if image.disk_gb is None else image.disk_gb + beside < disk_gb


@dataclass(frozen=True)
class ImageEstimate:
    """One image, what the cells that take it need beside it, in GB, and whether a disk holds both (None: unknown)."""

    image: Image
    slim: bool
    extra_gb: float
    fits: bool | None

    @property
    def to_json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "tag": self.image.tag,
            "slim": self.slim,
            "disk-gb": self.image.disk_gb,
            "beside-gb": round(self.extra_gb, 2),
            "fits": self.fits,
        }


def estimate_images(matrix: Matrix, kernel_bytes: Mapping[Cell, int], disk_gb: float) -> list[ImageEstimate]:
    """For each image that some of these cells take, and then for the slim one of their ROCm, whether a disk holds it.

    `kernel_bytes` is what compiling the kernels of each cell takes. Triton cells need no ROCm, so no image.
    """
    cells: dict[tuple[Image, bool], list[Cell]] = {}
    for cell in kernel_bytes:
        for slim in (False, True):
            image = matrix.image(cell, slim=slim)
            if slim == (image is matrix.rocm[cell.rocm].slim):
                cells.setdefault((image, slim), []).append(cell)
    outlooks = []
    for (image, slim), members in cells.items():
        beside = extra_disk_gb(image, members, max(kernel_bytes[cell] for cell in members))
        outlooks.append(ImageEstimate(image, slim, beside, fits_on_disk(image, beside, disk_gb)))
    return outlooks


def render_image_estimates(outlooks: Sequence[ImageEstimate], disk_gb: float) -> Iterator[str]:
    """The block of the images; none if there are none."""
    if outlooks:
        yield f"images, on a disk of {disk_gb:g} GB"
    for outlook in outlooks:
        verdict = {True: "fits", False: "too big", None: "unknown"}[outlook.fits]
        size = f"{outlook.image.disk_gb} GB" if outlook.image.disk_gb else "size unknown"
        slim = ", slim" if outlook.slim else ""
        yield f"  {verdict:<9}  {outlook.image.tag}{slim}: {size}, and {outlook.extra_gb:.1f} GB beside it"
