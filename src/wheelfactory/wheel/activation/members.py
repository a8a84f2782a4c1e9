"""Files that the factory adds to a wheel: for Triton, a module that makes it work without an environment variable.

Why a module and not a ``.pth`` file or a patch: docs/explanation/activation.md.
"""

from __future__ import annotations

from pathlib import Path

from wheelfactory.core.cell import Backend, Cell

EXTENSION_MODULE = "flash_attn_2_cuda"
"""The compiled module that `flash_attn` imports for CK; upstream kept its CUDA name on ROCm."""

ACTIVATION_MODULE = f"{EXTENSION_MODULE}.py"
"""The file added to a Triton wheel. Python prefers a compiled module of the same name in the same folder."""


CHECKED_CALLS = "flash_attn/flash_attn_triton_amd/__init__.py"
"""The file of a Triton wheel that refuses or converts what the kernels compute wrongly; upstream's is empty."""


def added_members(cell: Cell) -> dict[str, bytes]:
    """Return the files that the factory adds to the finished wheel of a cell, or replaces in it, by member name."""
    if cell.backend is Backend.CK:
        return {}
    if cell.uses_aiter:
        return {ACTIVATION_MODULE: _read("from_aiter.py")}
    return {ACTIVATION_MODULE: _read(ACTIVATION_MODULE), CHECKED_CALLS: _read("checked_calls.py")}


def _read(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()
