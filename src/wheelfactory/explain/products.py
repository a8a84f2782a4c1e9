"""Offload archs -> the GPUs that people know.

Source: the table of targets in ROCm/TheRock's RELEASES.md, August 2026.
"""

from __future__ import annotations

PRODUCTS = {
    "gfx900": "Instinct MI25",
    "gfx906": "Instinct MI50, MI60, Radeon VII",
    "gfx908": "Instinct MI100",
    "gfx90a": "Instinct MI210, MI250, MI250X",
    "gfx942": "Instinct MI300A, MI300X, MI325X",
    "gfx950": "Instinct MI350X, MI355X",
    "gfx1010": "Radeon RX 5700",
    "gfx1030": "Radeon RX 6800, 6900, PRO W6800, V620",
    "gfx1031": "Radeon RX 6700 XT, 6750 XT",
    "gfx1032": "Radeon RX 6600, PRO W6600",
    "gfx1034": "Radeon RX 6500 XT",
    "gfx1035": "Radeon 680M",
    "gfx1036": "Ryzen 7000 (Raphael) graphics",
    "gfx1100": "Radeon RX 7900, PRO W7800, W7900",
    "gfx1101": "Radeon RX 7700 XT, 7800 XT, PRO W7700, V710",
    "gfx1102": "Radeon RX 7600",
    "gfx1103": "Radeon 780M (Ryzen 7 7840U)",
    "gfx1150": "Ryzen AI 9 HX 375 (Strix Point)",
    "gfx1151": "Ryzen AI Max (Strix Halo)",
    "gfx1152": "Ryzen AI 7 350",
    "gfx1153": "Radeon 820M",
    "gfx1200": "Radeon RX 9060",
    "gfx1201": "Radeon RX 9070, AI PRO R9700",
}

FAMILIES = {
    "gfx9": "gfx90a, gfx942 and other gfx9 without code of their own (Instinct MI200 and MI300)",
    "gfx950": "gfx950 (Instinct MI350)",
    "gfx11": "gfx11 (Radeon RX 7000, Ryzen AI)",
    "gfx12": "gfx12 (Radeon RX 9000)",
    "gfx125": "gfx125",
}
"""What the end of a kernel's name stands for in flash-attn after 2025-12; the file is compiled for the other archs too,
and is empty there (an #if in the generated source)."""


def product(arch: str) -> str:
    """The GPUs of an offload arch, features such as ``:xnack-`` ignored; empty if it is not known here."""
    return PRODUCTS.get(arch.partition(":")[0], "")
