"""Compiled cells -> the images that they can be built in, the slim ones too, and which of them a disk holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wheelfactory.build.container.fit import beside_gb, fits
from wheelfactory.core.cell import Cell
from wheelfactory.matrix.facts import Image, Matrix


@dataclass(frozen=True)
class ImageOutlook:
    """One image, what the cells that take it need beside it, in GB, and whether a disk holds both (None: unknown)."""

    image: Image
    slim: bool
    beside_gb: float
    fits: bool | None

    @property
    def entry(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "tag": self.image.tag,
            "slim": self.slim,
            "disk-gb": self.image.disk_gb,
            "beside-gb": round(self.beside_gb, 2),
            "fits": self.fits,
        }


def image_outlooks(matrix: Matrix, kernel_bytes: Mapping[Cell, int], disk_gb: float) -> list[ImageOutlook]:
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
        beside = beside_gb(image, members, max(kernel_bytes[cell] for cell in members))
        outlooks.append(ImageOutlook(image, slim, beside, fits(image, beside, disk_gb)))
    return outlooks


def outlook_lines(outlooks: Sequence[ImageOutlook], disk_gb: float) -> Iterator[str]:
    """The block of the images; none if there are none."""
    if outlooks:
        yield f"images, on a disk of {disk_gb:g} GB"
    for outlook in outlooks:
        verdict = {True: "fits", False: "too big", None: "unknown"}[outlook.fits]
        size = f"{outlook.image.disk_gb} GB" if outlook.image.disk_gb else "size unknown"
        slim = ", slim" if outlook.slim else ""
        yield f"  {verdict:<9}  {outlook.image.tag}{slim}: {size}, and {outlook.beside_gb:.1f} GB beside it"
