"""`Matrix` -> cells, and every combination that cannot work with the reason why."""

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
    """A combination that is not built, and why."""

    combination: Combination
    reason: str

    @property
    def name(self) -> str:
        """The combination, written like a cell id (with its Python even for Triton)."""
        flash_attn, python, torch, rocm, backend = self.combination
        return f"fa{flash_attn}-rocm{rocm}-torch{torch}-cp{python.replace('.', '')}-{backend}"


@dataclass(frozen=True)
class Expansion:
    """What became of every combination: `pythons` of a cell and `excluded` together are the whole product."""

    pythons: dict[Cell, tuple[str, ...]]
    """The Pythons that each cell serves: one for CK, several for a Triton cell."""
    excluded: tuple[Excluded, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells to build, in the order of matrix.yaml."""
        return tuple(self.pythons)


def expand(matrix: Matrix) -> Expansion:
    """Every combination of the axes, either as (part of) a cell or excluded with its reason.

    Raises `InputError` if two cells would make a wheel of the same file name.
    """
    pythons: dict[Cell, tuple[str, ...]] = {}
    excluded: list[Excluded] = []
    refuse = exclusion_check(matrix)
    for combination in product(matrix.flash_attn, matrix.python, matrix.torch, matrix.rocm, matrix.backend):
        reason = refuse(combination)
        if reason:
            excluded.append(Excluded(combination, reason))
        else:
            cell = Cell.from_axes(*combination)
            pythons[cell] = (*pythons.get(cell, ()), combination[1])
    _refuse_same_wheel(matrix, pythons)
    return Expansion(pythons, tuple(excluded))


def _refuse_same_wheel(matrix: Matrix, cells: dict[Cell, tuple[str, ...]]) -> None:
    taken: dict[tuple[str, str, str], Cell] = {}
    for cell in cells:
        label = str(matrix.label(cell))
        other = taken.setdefault((cell.flash_attn, cell.python_tag, label), cell)
        if other is not cell:
            raise InputError(
                "two cells would make the same wheel",
                f"{other.id} and {cell.id} are both labelled {label}",
                "a label has major and minor only: keep one patch version, or exclude one of the two with a reason",
            )


def find_excluded(expansion: Expansion, cell: Cell) -> Iterator[Excluded]:
    """What was excluded of the combinations that belong to a cell."""
    return (item for item in expansion.excluded if Cell.from_axes(*item.combination) == cell)
