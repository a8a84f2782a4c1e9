"""The manifest of a small release with wheels for many kinds of machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from report_rows import einops_row, rows_of
from wheelfactory.doctor.published_wheels import PublishedWheel, parse_wheels
from wheelfactory.release.manifest import WheelRow, manifest_bytes

BASE = "https://wheels.example/"

INSTINCT = ("gfx90a", "gfx942", "gfx950")
TRITON = (*INSTINCT, "gfx1030", "gfx1100", "gfx1200", "gfx1201")


def small_release(folder: Path) -> tuple[WheelRow, ...]:
    """Return rows: CK for Instinct, Triton also for Radeon, torch 2.9 and 2.13, and torch 2.5 with the old C++ ABI."""
    cells = ["fa2.8.3-rocm6.4-torch2.9.1-cp311-ck", "fa2.8.3-rocm6.4-torch2.9.1-cp312-ck"]
    cells += ["fa2.7.4.post1-rocm6.4-torch2.9.1-cp311-ck", "fa2.8.3-rocm7.2-torch2.13.0-cp311-ck"]
    ck = rows_of(folder, cells, offload_archs=INSTINCT, cxx11_abi=True, glibc="2.28")
    old = rows_of(
        folder, ["fa2.8.3-rocm6.2-torch2.5.1-cp311-ck"], offload_archs=INSTINCT, cxx11_abi=False, glibc="2.28"
    )
    triton = rows_of(folder, ["fa2.8.3-rocm6.4-torch2.9.1-py3-triton"], offload_archs=TRITON)
    return *ck, *old, *triton, einops_row(folder)


def fallback_row(folder: Path, version: str = "0.1.0", project: str = "flash-attention-amd") -> WheelRow:
    """Return the row of the pure-PyTorch fallback, or of the wheel that has it by the name flash-attn."""
    filename = f"{project.replace('-', '_')}-{version}-py3-none-any.whl"
    return einops_row(folder).model_copy(update={"project": project, "version": version, "filename": filename})


def fallback_rows(folder: Path) -> tuple[WheelRow, WheelRow]:
    """Return the rows of both."""
    return fallback_row(folder), fallback_row(folder, "2.6.3+fallback", "flash-attn")


def as_read(rows: Sequence[WheelRow]) -> tuple[PublishedWheel, ...]:
    """Return the wheels that the doctor reads from a manifest with these rows."""
    return parse_wheels(manifest_bytes(rows), "manifest.jsonl", BASE)
