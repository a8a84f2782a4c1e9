"""Files that the factory adds to a wheel: for Triton, a module that makes it work without an environment variable.

Why a module and not a ``.pth`` file or a patch: docs/explanation/activation.md.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from wheelfactory.core.cell import Backend, Cell

EXTENSION_MODULE = "flash_attn_2_cuda"
"""The compiled module that `flash_attn` imports for CK; upstream kept its CUDA name on ROCm."""

ACTIVATION_MODULE = f"{EXTENSION_MODULE}.py"
"""The file added to a Triton wheel. Python prefers a compiled module of the same name in the same folder."""


CHECKED_CALLS = "flash_attn/flash_attn_triton_amd/__init__.py"
"""The file that refuses or converts what the Triton kernels compute wrongly; upstream's is empty."""

CHECKED_EXTENSION = "flash_attn/checked_extension.py"
"""The file of a CK wheel that refuses what the extension ignores."""


def added_members(cell: Cell, upstream: Collection[str]) -> dict[str, bytes]:
    """Return the files that the factory adds to the finished wheel of a cell, or replaces in it, by member name.

    `upstream` has the members of the raw wheel. A CK wheel has upstream's Triton code too, which an environment
    variable selects.
    """
    added = {CHECKED_CALLS: _read("checked_calls.py")} if CHECKED_CALLS in upstream else {}
    if cell.backend is Backend.TRITON:
        return {**added, ACTIVATION_MODULE: _read("from_aiter.py" if cell.uses_aiter else ACTIVATION_MODULE)}
    if cell.commit:
        added["flash_attn/from_aiter.py"] = _read("from_aiter.py")
    return {**added, CHECKED_EXTENSION: _read("checked_extension.py")}


def _read(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()
