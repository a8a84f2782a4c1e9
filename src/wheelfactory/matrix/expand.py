"""Expand a `Matrix` to cells, and to the excluded combinations with their reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.rules import Combination, exclusion_check


@dataclass(frozen=True)
class Excluded:
    """A combination that is not built, with the reason."""

    combination: Combination
    reason: str

    @property
    def name(self) -> str:
        """The combination, spelled like a cell id, but with its Python even for Triton."""
        flash_attn, python, torch, rocm, backend = self.combination
        return f"fa{flash_attn}-rocm{rocm}-torch{torch}-cp{python.replace('.', '')}-{backend}"


@dataclass(frozen=True)
class Expansion:
    """All combinations of the axes, each either in the `pythons` of a cell or `excluded`."""

    pythons: dict[Cell, tuple[str, ...]]
    """The Pythons of each cell: one for CK, several for Triton."""
    excluded: tuple[Excluded, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells to build, in the order of matrix.yaml."""
        return tuple(self.pythons)


def expand(matrix: Matrix) -> Expansion:
    """Expand a matrix. Raises `InputError` if the wheels of two cells would have the same file name."""
    pythons: dict[Cell, tuple[str, ...]] = {}
    excluded: list[Excluded] = []
    find_reason = exclusion_check(matrix)
    for combination in product(matrix.flash_attn, matrix.python, matrix.torch, matrix.rocm, matrix.backend):
        reason = find_reason(combination)
        if reason:
            excluded.append(Excluded(combination, reason))
        else:
            cell = Cell.from_axes(*combination)
            pythons[cell] = (*pythons.get(cell, ()), combination[1])
    _check_unique_wheels(matrix, pythons)
    return Expansion(pythons, tuple(excluded))


def _check_unique_wheels(matrix: Matrix, cells: dict[Cell, tuple[str, ...]]) -> None:
    first: dict[tuple[str, str, str], Cell] = {}
    for cell in cells:
        label = str(matrix.label(cell))
        other = first.setdefault((cell.public_version, cell.python_tag, label), cell)
        if other is not cell:
            raise InputError(
                "two cells would make the same wheel",
                f"{other.id} and {cell.id} are both labelled {label}",
                "labels have only major and minor: keep one patch version, or exclude one of the two with a reason",
            )


def find_excluded(expansion: Expansion, cell: Cell) -> Iterator[Excluded]:
    """Find the excluded combinations of a cell."""
    return (item for item in expansion.excluded if Cell.from_axes(*item.combination) == cell)
