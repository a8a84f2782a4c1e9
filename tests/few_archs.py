"""The matrix with two of the twelve archs of Triton wheels, for which the slow gate takes a fifth of the time.

All twelve are executed for before a wheel is published, by the gate itself.
"""

from __future__ import annotations

import re
from pathlib import Path

from wheelfactory.core.files import MATRIX

FEW_ARCHS = ("gfx90a", "gfx1201")
"""One of CDNA and one of RDNA 4, which differ in wave size and matrix instructions. Kernels for RDNA 3 are executed by
the tests with another Triton and of an installed package."""


def write_few_archs(path: Path, archs: tuple[str, ...] = FEW_ARCHS) -> Path:
    """Write the matrix of the checkout with `archs` for the Triton wheels of flash-attn 2.8.3."""
    entry = r"(triton: &triton-2-8\n\s+archs:\s+)\[[^]]+\]"
    text, count = re.subn(entry, rf"\1[{', '.join(archs)}]", MATRIX.read_text(encoding="utf-8"))
    assert count == 1
    path.write_text(text, encoding="utf-8")
    return path
