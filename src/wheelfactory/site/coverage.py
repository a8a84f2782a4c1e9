"""Matrix and manifest rows -> coverage: what is wanted, published, yanked, missing, and excluded with its reason."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TypeVar

from wheelfactory.core.cell import Cell
from wheelfactory.matrix.expand import Excluded, Expansion
from wheelfactory.matrix.select import matches, select
from wheelfactory.release.manifest import WheelRow

Key = TypeVar("Key", bound=Hashable)

Reasons = tuple[tuple[str, int], ...]
"""Reasons, each with the number of combinations it excludes; the commonest first."""


class State(str, Enum):
    """What became of a wanted cell."""

    PUBLISHED = "published"
    YANKED = "yanked"
    MISSING = "missing"

    def __str__(self) -> str:
        return self.value


def decisive_rows(rows: Iterable[WheelRow]) -> dict[str, WheelRow]:
    """The row that decides for each cell id: of several, one that is not yanked, and the last published of those.

    A yanked wheel may be replaced by one with a build tag, so that a cell can have several.
    """
    ordered = sorted(rows, key=lambda row: (row.yanked is None, row.published, row.filename))
    return {row.cell: row for row in ordered if row.cell}


def available_cells(rows: Iterable[WheelRow]) -> frozenset[str]:
    """The ids of the cells that can be installed: published, and not yanked."""
    return frozenset(row.cell for row in rows if row.cell and row.yanked is None)


@dataclass(frozen=True)
class Covered:
    """A wanted cell, and the row that decides what became of it."""

    cell: Cell
    row: WheelRow | None

    @property
    def state(self) -> State:
        """Published, yanked or missing."""
        if self.row is None:
            return State.MISSING
        return State.PUBLISHED if self.row.yanked is None else State.YANKED


@dataclass(frozen=True)
class Tally:
    """Numbers of wanted cells by state, and of combinations that are not wanted by reason."""

    published: int
    yanked: int
    missing: int
    excluded: Reasons

    @property
    def wanted(self) -> int:
        """Cells that the matrix has."""
        return self.published + self.yanked + self.missing

    @property
    def combinations(self) -> int:
        """Combinations that are excluded."""
        return sum(number for _, number in self.excluded)


@dataclass(frozen=True)
class Coverage:
    """What became of the cells that were selected, in the order of matrix.yaml."""

    cells: tuple[Covered, ...]
    excluded: tuple[Excluded, ...]
    unwanted: tuple[str, ...]
    """Ids that are published and that the matrix does not have (any more), sorted."""

    @property
    def tally(self) -> Tally:
        """The sums."""
        return self.tallies(lambda _: None).get(None, Tally(0, 0, 0, ()))

    def tallies(self, key: Callable[[Cell], Key]) -> dict[Key, Tally]:
        """The sums of each group that `key` makes; the cell of an excluded combination counts like a wanted one."""
        states: dict[Key, Counter[State]] = defaultdict(Counter)
        reasons: dict[Key, Counter[str]] = defaultdict(Counter)
        for covered in self.cells:
            states[key(covered.cell)][covered.state] += 1
        for item in self.excluded:
            reasons[key(Cell.of(*item.combination))][item.reason] += 1
        return {
            group: Tally(
                states[group][State.PUBLISHED],
                states[group][State.YANKED],
                states[group][State.MISSING],
                tuple(sorted(reasons[group].items(), key=lambda item: (-item[1], item[0]))),
            )
            for group in {**states, **reasons}
        }


def cover(expansion: Expansion, rows: Iterable[WheelRow], only: str = "*") -> Coverage:
    """The coverage of the cells, and of the excluded combinations, that the glob `only` matches.

    Raises `InputError` if no cell matches.
    """
    decisive = decisive_rows(rows)
    wanted = {cell.id for cell in expansion.cells}
    return Coverage(
        tuple(Covered(cell, decisive.get(cell.id)) for cell in select(expansion, only)),
        tuple(item for item in expansion.excluded if matches(item, only)),
        tuple(sorted(cell for cell in decisive if cell not in wanted and fnmatchcase(cell, only))),
    )
