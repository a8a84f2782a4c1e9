"""Rows of fictitious wheels for the search page: as many as needed, the same in every run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from itertools import count, islice

from validations import amd_validation, nvidia_validation, with_evidence
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.label import Label
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.verify.result import GateResult, Status

RELEASES = "https://github.com/OWNER/REPO/releases/download/v1"
FIRST = datetime(2026, 9, 1, tzinfo=timezone.utc)

_GATES = {
    Backend.CK: ("archive", "identity", "record", "contents", "linking", "code-objects", "symbols", "import"),
    Backend.TRITON: ("archive", "identity", "record", "contents", "import", "emulation"),
}


def row_of(matrix: Matrix, cell: Cell, /, *, build: int = 0, **changed: object) -> WheelRow:
    """The row of a cell's wheel; `build` makes another file of the same cell, later than that of the matrix."""
    label = Label.from_cell(cell)
    build += int(matrix.build_tag(cell) or 0)
    compiled = cell.backend is Backend.CK
    tags = f"{cell.python_tag}-{cell.python_tag}-manylinux_2_28_x86_64" if compiled else "py3-none-any"
    version = f"{cell.public_version}+{label}"
    filename = f"flash_attn-{version}{f'-{build}' if build else ''}-{tags}.whl"
    digest = hashlib.sha256(filename.encode()).hexdigest()
    gates = [GateResult(gate=name, status=Status.PASSED) for name in _GATES[cell.backend]]
    row = WheelRow(
        project="flash-attn",
        version=version,
        filename=filename,
        sha256=digest,
        size=150_000_000 + int(digest[:6], 16) * 9 if compiled else 218_000 + int(digest[:4], 16),
        requires_python=">=3.9",
        metadata_sha256=digest[::-1],
        published=FIRST + timedelta(days=int(digest[:2], 16) % 60),
        cell=cell.id,
        label=str(label),
        offload_archs=matrix.archs(cell),
        cxx11_abi=matrix.torch[cell.torch].cxx11_abi if compiled else None,
        glibc="2.28" if compiled else None,
        gates=(*gates, GateResult.not_run("gpu", "needs an AMD GPU, and none is visible here")),
        url=f"{RELEASES}/{filename.replace('+', '%2B')}",
    )
    return row.model_copy(update=changed)


def example_rows(matrix: Matrix) -> list[WheelRow]:
    """Most of a matrix: ROCm 7.0 lacks its wheels, two wheels are yanked, every seventh is missing.

    Every third Triton wheel was tried on an H200, every sixth is verified on an MI300X too.
    """
    cells = [cell for cell in expand(matrix).cells if cell.rocm != "7.0"]
    rows = [row_of(matrix, cell) for number, cell in enumerate(cells) if number % 7]
    triton = [number for number, row in enumerate(rows) if "triton" in str(row.cell)]
    for number in triton[::3]:
        rows[number] = with_evidence(rows[number], nvidia_validation(rows[number]))
    for number in triton[::6]:
        rows[number] = with_evidence(rows[number], nvidia_validation(rows[number]), amd_validation(rows[number]))
    yanked = "wrong kernels for gfx950; take the wheel with build tag 1"
    return [row.model_copy(update={"yanked": yanked}) if number in (3, 90) else row for number, row in enumerate(rows)]


def many_rows(matrix: Matrix, wanted: int) -> list[WheelRow]:
    """`count` rows: the cells of the matrix repeatedly, with different build tags."""
    return list(islice(_forever(matrix, expand(matrix).cells), wanted))


def _forever(matrix: Matrix, cells: Sequence[Cell]) -> Iterator[WheelRow]:
    for build in count():
        for cell in cells:
            yield row_of(matrix, cell, build=build)
