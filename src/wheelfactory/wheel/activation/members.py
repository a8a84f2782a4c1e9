"""The module that the factory adds to a Triton wheel: it works without an environment variable by that.

Why a module and not a ``.pth`` file or a patch: docs/explanation/activation.md.
"""

from __future__ import annotations

from pathlib import Path

from wheelfactory.core.cell import Backend, Cell

EXTENSION_MODULE = "flash_attn_2_cuda"
"""The compiled module that `flash_attn` imports for CK; upstream kept its CUDA name on ROCm."""

ACTIVATION_MODULE = f"{EXTENSION_MODULE}.py"
"""The file added to a Triton wheel. Python prefers a compiled module of the same name in the same folder."""


def added_members(cell: Cell) -> dict[str, bytes]:
    """Return the module that the factory adds to the finished wheel of a cell, by member name."""
    if cell.backend is Backend.CK:
        return {}
    name = "checked_aiter.py" if cell.uses_aiter else ACTIVATION_MODULE
    return {ACTIVATION_MODULE: Path(__file__).with_name(name).read_bytes()}
