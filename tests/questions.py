"""What people ask for, with the answer that a maintainer would give; the page and the doctor must give it alike.

A question is what a user types as GPU, ROCm, torch, Python and backend; an empty text is no choice.
"""

from __future__ import annotations

from typing import NamedTuple

from wheelfactory.core.support import OTHER_BUILD

WORKS, MAY, NOT = "works", "may work", "does not work"


class Question(NamedTuple):
    """A question and its answer."""

    gpu: str
    rocm: str
    torch: str
    python: str
    backend: str
    arch: str
    """The gfx name that the GPU stands for; empty if it is unknown or ambiguous."""
    answer: str
    reason: str = ""
    """A part of the first reason; empty for `WORKS`."""


_CK = "CK in flash-attn up to 2.8.3.post2 does not support"
_PREVIEW = "flash-attn 2.8.4 preview (commit 4a948e9) is not a release of upstream"
_NO_TORCH = "PyTorch does not build torch for"
_UNLISTED = "flash-attn's Triton backend does not list"

QUESTIONS = (
    # a GPU alone
    Question("RX 7900 XTX", "", "", "", "", "gfx1100", WORKS),
    Question("7900xtx", "", "", "", "triton", "gfx1100", WORKS),
    Question("RX 7900 XTX", "", "", "", "ck", "gfx1100", MAY, _PREVIEW),
    Question("RX 7900 XTX", "7.2", "2.13.0", "3.12", "ck", "gfx1100", MAY, _PREVIEW),
    Question("RX 7900 XTX", "7.2", "2.12.1", "3.12", "ck", "gfx1100", NOT, f"{_CK} gfx1100"),
    Question("MI300X", "", "", "", "", "gfx942", WORKS),
    Question("AMD Instinct MI300X OAM", "", "", "", "ck", "gfx942", WORKS),
    Question("mi250", "", "", "", "ck", "gfx90a", WORKS),
    Question("MI100", "", "", "", "ck", "gfx908", NOT, f"{_CK} gfx908"),
    Question("MI100", "", "", "", "triton", "gfx908", WORKS),
    Question("MI50", "", "", "", "", "gfx906", NOT, f"{_CK} gfx906"),
    Question("Radeon VII", "", "", "", "triton", "gfx906", NOT, "Triton kernels fail on gfx906"),
    Question("MI355X", "", "", "", "", "gfx950", WORKS),
    Question("Strix Halo", "", "", "", "", "gfx1151", MAY, f"{_UNLISTED} gfx1151"),
    Question("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "", "", "", "triton", "gfx1151", MAY, f"{_UNLISTED} gfx1151"),
    Question("Ryzen AI 9 HX 370", "", "", "", "", "gfx1150", MAY, f"{_UNLISTED} gfx1150"),
    Question("Radeon 780M", "", "", "", "", "gfx1103", MAY, f"{_UNLISTED} gfx1103"),
    Question("760M", "", "", "", "ck", "gfx1103", NOT, f"{_CK} gfx1103"),
    Question("860M", "", "", "", "", "gfx1152", NOT, f"{_NO_TORCH} gfx1152"),
    Question("RX 9070 XT", "", "", "", "", "gfx1201", WORKS),
    Question("9070 GRE", "", "", "", "", "gfx1201", WORKS),
    Question("9060 XT 16GB", "", "", "", "", "gfx1200", WORKS),
    Question("R9700", "", "", "", "", "gfx1201", WORKS),
    Question("PRO W7600", "", "", "", "", "gfx1102", WORKS),
    Question("RX 7600M XT", "", "", "", "", "gfx1102", WORKS),
    Question("PRO W7800 48GB", "", "", "", "", "gfx1100", WORKS),
    Question("7700", "", "", "", "", "gfx1101", WORKS),
    Question("RX 6800", "", "", "", "", "gfx1030", WORKS),
    Question("RX 6950 XT", "", "", "", "ck", "gfx1030", NOT, f"{_CK} gfx1030"),
    Question("RX 6700 XT", "", "", "", "", "gfx1031", NOT, f"{_NO_TORCH} gfx1031"),
    Question("RX 6650 XT", "", "", "", "", "gfx1032", NOT, f"{_NO_TORCH} gfx1032"),
    Question("6750 GRE 12GB", "", "", "", "", "gfx1031", NOT, f"{_NO_TORCH} gfx1031"),
    Question("RX 6400", "", "", "", "", "gfx1034", NOT, f"{_NO_TORCH} gfx1034"),
    Question("Radeon 680M", "", "", "", "", "gfx1035", NOT, f"{_NO_TORCH} gfx1035"),
    Question("RX 5700 XT", "", "", "", "", "gfx1010", NOT, f"{_NO_TORCH} gfx1010"),
    Question("RX 5500 XT", "", "", "", "", "gfx1012", NOT, f"{_NO_TORCH} gfx1012"),
    Question("gfx942:sramecc+:xnack-", "", "", "", "", "gfx942", WORKS),
    Question("gfx90a", "", "", "", "", "gfx90a", WORKS),
    Question("RX 580", "", "", "", "", "gfx803", NOT, f"{_NO_TORCH} gfx803"),
    # names that stand for no GPU, or for several
    Question("RTX 4090", "", "", "", "", "", NOT),
    Question("RX 7", "", "", "", "", "", NOT),
    Question("840M", "", "", "", "", "", NOT),
    # with versions
    Question("RX 7900 XTX", "7.2", "2.13", "3.12", "", "gfx1100", WORKS),
    Question("RX 7900 XTX", "6.4", "2.9.1", "3.11", "triton", "gfx1100", WORKS),
    Question("RX 7800 XT", "6.2", "2.5.1", "3.11", "", "gfx1101", NOT, "torch for ROCm 6.2 is not built for gfx1101"),
    Question("RX 9070", "6.2", "", "", "", "gfx1201", NOT, "torch for ROCm 6.2 is not built for gfx1201"),
    Question("MI300X", "6.4", "2.9.1", "3.12", "ck", "gfx942", WORKS),
    Question("MI300X", "7.2", "2.14.1", "3.12", "ck", "gfx942", MAY, _PREVIEW),
    Question("MI300X", "7.2", "2.14.1", "3.12", "", "gfx942", WORKS),
    Question("MI300X", "7.14", "2.14", "3.13", "triton", "gfx942", WORKS),
    Question("MI350X", "6.4", "", "", "", "gfx950", NOT, "torch for ROCm 6.4 is not built for gfx950"),
    Question("MI350X", "7.0", "2.10.0", "3.11", "ck", "gfx950", WORKS),
    Question("MI300X", "6.2", "2.5.1", "3.11", "triton", "gfx942", WORKS),
    Question("MI300X", "6.2", "2.5.1", "3.13", "", "gfx942", NOT, "torch 2.5.1 for ROCm has no Python 3.13"),
    Question("MI300X", "7.2", "2.9.1", "3.12", "ck", "gfx942", MAY, OTHER_BUILD),  # AMD has an image of it
    Question("MI300X", "7.2", "2.9.1", "3.13", "ck", "gfx942", NOT, "torch 2.9.1 is not on the ROCm 7.2 index"),
    Question("MI300X", "5.7", "", "", "", "gfx942", NOT, "no wheels for ROCm 5.7"),
    Question("MI300X", "", "2.4.0", "", "", "gfx942", NOT, "no wheels for torch 2.4"),
    Question("MI300X", "", "", "3.9", "", "gfx942", NOT, "no wheels for Python 3.9"),
    Question("Strix Halo", "7.2", "2.11.0", "3.12", "triton", "gfx1151", MAY, f"{_UNLISTED} gfx1151"),
    Question("Strix Halo", "6.4", "2.9.1", "3.12", "", "gfx1151", NOT, "torch for ROCm 6.4 is not built for gfx1151"),
    Question("Radeon 780M", "7.1", "2.13.0", "3.12", "", "gfx1103", NOT, "torch for ROCm 7.1 is not built for gfx1103"),
    Question("RX 7900 XTX", "6.1", "2.6.0", "3.10", "", "gfx1100", WORKS),
    Question("RX 6800", "7.2", "2.13.0", "3.12", "triton", "gfx1030", WORKS),
    # another build of torch than PyTorch's: ROCm is no condition for Triton, and the symbols are one for CK
    Question("AMD Radeon RX 9060 XT 16GB", "7.14.0", "2.12.0+rocm7.14.0", "3.13", "", "gfx1200", WORKS),
    Question("Strix Halo", "7.13", "2.12", "3.12", "", "gfx1151", MAY, f"{_UNLISTED} gfx1151"),
    Question("7900 XTX", "7.2.4", "2.10.0+rocm7.2.4.git3d3aa833", "3.12", "", "gfx1100", WORKS),
    Question("7900xtx", "7.2.1", "2.9.1", "3.12", "", "gfx1100", WORKS),
    Question("RX 7900 XTX", "10.0", "2.13.0", "3.12", "", "gfx1100", WORKS),
    Question("RX 7900 XTX", "10.1", "2.14.0", "3.12", "", "gfx1100", WORKS),
    Question("RX 7900 XTX", "10.1", "2.14.0a0+rocm10.1.0a20260811", "3.12", "ck", "gfx1100", NOT, "no wheels for ROCm"),
    Question("gfx1100", "7.2", "2.14.0", "3.12", "ck", "gfx1100", MAY, _PREVIEW),
    Question("MI300X", "7.1.1", "2.10.0+rocm7.1.1.git3d3aa833", "3.12", "ck", "gfx942", MAY, OTHER_BUILD),
    Question("MI300X", "7.1.1", "2.10.0+rocm7.1.1.git3d3aa833", "3.12", "", "gfx942", WORKS),
    Question("RX 7800 XT", "6.2.4", "2.7.1", "3.11", "", "gfx1101", MAY, "not every torch for ROCm 6.2.4"),
    Question("MI300X", "10.0", "2.4.0", "3.12", "", "gfx942", NOT, "no wheels for torch 2.4"),
    Question("MI300X", "10.0", "2.13.0", "3.9", "", "gfx942", NOT, "no wheels for Python 3.9"),
    Question("MI50", "10.0", "2.13.0", "3.12", "", "gfx906", NOT, "Triton kernels fail on gfx906"),
    Question("Strix Halo", "7.2.1", "2.9.1", "3.12", "", "gfx1151", MAY, f"{_UNLISTED} gfx1151"),
)
