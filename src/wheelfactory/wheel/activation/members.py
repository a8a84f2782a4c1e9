"""The module that is added to every Triton wheel, so that it works without an environment variable.

Why it is a module of that name, and not a ``.pth`` file or a patch: docs/explanation/activation.md.
"""

from __future__ import annotations

from pathlib import Path

from wheelfactory.core.cell import Backend

EXTENSION_MODULE = "flash_attn_2_cuda"
"""The module that `flash_attn` imports unless the variable is TRUE; upstream kept its CUDA name on ROCm."""

ACTIVATION_MODULE = f"{EXTENSION_MODULE}.py"
"""The member of a Triton wheel; Python prefers a compiled module of the same name in the same folder."""


def added_members(backend: Backend) -> dict[str, bytes]:
    """What a finished wheel holds besides upstream's own files and its dist-info, by member name."""
    return (
        {ACTIVATION_MODULE: Path(__file__).with_name(ACTIVATION_MODULE).read_bytes()}
        if backend is Backend.TRITON
        else {}
    )
