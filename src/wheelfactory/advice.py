"""A published wheel -> the lines that install it, for pip on a ROCm machine and for a try on this one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from wheelfactory.cell import Backend, Cell
from wheelfactory.environments import cpu_torch, cpu_torch_options, cpu_torch_version
from wheelfactory.index import index_path
from wheelfactory.manifest import WheelRow
from wheelfactory.matrix import Matrix


def install_lines(rows: Sequence[WheelRow], folder: Path) -> list[str]:
    """A line for each index that lists one of the rows, for a machine with that torch for that ROCm.

    The index alone is named, so that nothing can be taken from elsewhere.
    """
    keys = dict.fromkeys(row.index_key for row in rows if row.index_key)
    root = f"file://{quote(str(folder.resolve()))}"
    return [shlex.join(["pip", "install", "--index-url", f"{root}/{index_path(key)}/", "flash-attn"]) for key in keys]


def trial_line(row: WheelRow, folder: Path, matrix: Matrix) -> str:
    """The line for a machine without ROCm: CPU torch and the Triton of the cell, pinned, beside the full label."""
    triton = matrix.torch[Cell.parse(str(row.cell)).torch].triton
    return shlex.join(
        [
            "pip",
            "install",
            *cpu_torch_options(),
            "--find-links",
            str(folder.resolve() / "wheels"),
            cpu_torch(),
            f"triton=={triton}",
            f"flash-attn=={row.version}",
        ]
    )


def pick_for_trial(rows: Sequence[WheelRow], matrix: Matrix) -> WheelRow | None:
    """The row that can be tried on a machine without ROCm: Triton, for the torch whose CPU build is used.

    Of several it is the one that the matrix lists first, which is the newest.
    """
    torch = cpu_torch_version()
    releases, rocms = list(matrix.flash_attn), list(matrix.rocm)
    fitting: list[tuple[int, int, WheelRow]] = []
    for row in rows:
        cell = Cell.parse(row.cell) if row.cell else None
        if cell is None or row.yanked or cell.torch != torch or cell.backend is not Backend.TRITON:
            continue
        if cell.flash_attn in releases and cell.rocm in rocms:
            fitting.append((releases.index(cell.flash_attn), rocms.index(cell.rocm), row))
    return min(fitting, key=lambda item: item[:2])[2] if fitting else None
