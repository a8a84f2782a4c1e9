"""An image, what a build puts beside it, and a disk -> whether they fit. GB are 10^9 bytes, as in matrix.yaml."""

from __future__ import annotations

from collections.abc import Iterable

from wheelfactory.core.cell import Cell
from wheelfactory.matrix.facts import Image

TORCH_GB = 18.0
"""ROCm's torch where it is installed: 13 unpacked (pytorch/pytorch#129165, torch 2.3.1+rocm6.0 with what it requires),
and 5 for its wheel, which pip has at the same time and keeps (2.10.0+rocm7.1 has 5.1). None was measured here."""


def beside_gb(image: Image, cells: Iterable[Cell], kernel_bytes: int) -> float:
    """What building these cells in an image needs beside it: their torch, unless the image has it, and the kernels.

    `kernel_bytes` is the disk that compiling them takes, as the forecast of a kernel set has it.
    """
    has_torch = all((image.torch, image.python) == (cell.torch, cell.python) for cell in cells)
    return (0.0 if has_torch else TORCH_GB) + kernel_bytes / 1000**3


def fits(image: Image, beside: float, disk_gb: float) -> bool | None:
    """Whether a disk of `disk_gb` holds an image and what is `beside` it; None where the size of the image decides
    and nobody has said it. What fills the disk to its last byte does not fit.
    """
    if beside >= disk_gb:
        return False
    return None if image.disk_gb is None else image.disk_gb + beside < disk_gb
