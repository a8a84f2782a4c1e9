"""Group cells into waves to build in turn, so that cells of one wave never wait for the same slow build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.kernels.kernel_set import sets_of_cell
from wheelfactory.matrix.facts import Matrix


def split_into_waves(matrix: Matrix, cells: Sequence[Cell]) -> tuple[tuple[Cell, ...], ...]:
    """Return the waves: a cell for each Triton wheel (minutes), those that compile kernel sets (hours), the others.

    The others only link or label.
    """
    triton: dict[str, Cell] = {}
    for cell in cells:
        if cell.backend is Backend.TRITON:
            triton.setdefault(cell.flash_attn, cell)
    leaders = [set(triton.values()), *_compile_waves(matrix, cells)]
    others = set(cells).difference(*leaders)
    return tuple(tuple(cell for cell in cells if cell in group) for group in (*leaders, others) if group)


def _compile_waves(matrix: Matrix, cells: Iterable[Cell]) -> Iterator[set[Cell]]:
    """Yield the cells that compile every kernel set once; no two of a wave compile the same set."""
    # a cell compiles all its sets in one build, and two cells can share some: both ABIs link the same device code
    missing = {cell: frozenset(sets_of_cell(matrix, cell)) for cell in cells}
    while any(missing.values()):
        compiling: set[str] = set()
        wave: set[Cell] = set()
        for cell, sets in missing.items():
            if sets and compiling.isdisjoint(sets):
                wave.add(cell)
                compiling |= sets
        yield wave
        missing = {cell: sets - compiling for cell, sets in missing.items()}
