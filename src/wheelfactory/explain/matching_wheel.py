"""Name the published wheel that makes what failed in a log unnecessary: by the torch and the GPUs that the log has."""

from __future__ import annotations

import re

from wheelfactory.core.cell import Backend, Cell, major_minor
from wheelfactory.core.label import Label, index_path
from wheelfactory.explain.build_log import FAILED, BuildLog
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix

DOCTOR_LINE = (
    "a prebuilt wheel needs no build; SITE's doctor names the one for your torch and GPU: "
    "`curl -O SITE/doctor.py && python3 doctor.py SITE`"
)
"""SITE is the address of a site of wheels, as in README."""

_TORCH = re.compile(r"(\d+)\.(\d+)[^+]*(?:\+rocm(\d+)\.(\d+))?")


def find_wheel_line(build_log: BuildLog, matrix: Matrix) -> str:
    """Return the install command of the wheel for the torch of a failed log; the doctor's command if that is unknown.

    Empty if nothing failed, for a CUDA build, and if no wheel changes anything.
    """
    if build_log.state != FAILED or build_log.is_cuda or (build_log.cause and not build_log.cause.wheel):
        return ""
    cell = _find_triton_cell(build_log, matrix)
    if cell is None:
        return DOCTOR_LINE
    torch, archs = cell.torch.rpartition(".")[0], ", ".join(build_log.archs)
    install = f"pip install --index-url SITE/{index_path(Label.from_cell(cell).index_key)}/ flash-attn"
    what = f"a Triton wheel for torch {torch}{f' and {archs}' * bool(archs)} needs no build"
    return f"{what}: `{install}`; or run the doctor of SITE: `curl -O SITE/doctor.py && python3 doctor.py SITE`"


def _find_triton_cell(build_log: BuildLog, matrix: Matrix) -> Cell | None:
    """Return the cell of the newest release for a torch; its ROCm is torch's own if possible, else the newest.

    A Triton wheel does not depend on ROCm's number: the payloads for two ROCms are equal.
    """
    match = _TORCH.match(build_log.torch)
    if match is None:
        return None
    torch, rocm = (int(match[1]), int(match[2])), (int(match[3] or 0), int(match[4] or 0))
    cells = [
        cell
        for cell in expand(matrix).cells
        if cell.backend is Backend.TRITON
        and not cell.commit
        and major_minor(cell.torch) == torch
        and set(build_log.archs) <= set(matrix.archs(cell))
    ]
    return max(cells, key=lambda cell: (major_minor(cell.rocm) == rocm, major_minor(cell.rocm)), default=None)
