"""Coverage of the matrix by published wheels: wanted, published, yanked, missing, left out, and excluded with reasons.

`commands/status.py` renders it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TypeVar

from wheelfactory.core.cell import Cell
from wheelfactory.core.published import build_key
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.expand import Excluded, Expansion, expand, matches_glob, needs_runner, select_cells
from wheelfactory.matrix.facts import Matrix
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified_reason

Key = TypeVar("Key", bound=Hashable)

Reasons = tuple[tuple[str, int], ...]
"""Each reason with the number of combinations it excludes, the most common first."""

NEEDS_RUNNER = "not built here: needs a runner"
RUNNER_HINT = "set the repository variable WHEELFACTORY_RUNNER to its label (docs/how-to/self-hosted-runners.md)"
OWNER_TITLE, OWNER_STEP = "For the owner of this site", f"CK wheels need a self-hosted runner: {RUNNER_HINT}."
"""What a visitor cannot do about a `page_runner_note`, and the heading above it."""


class CellState(str, Enum):
    """The state of a wanted cell."""

    PUBLISHED = "published"
    YANKED = "yanked"
    MISSING = "missing"
    NEEDS_RUNNER = "needs-runner"
    """It has no wheel, because this factory has no runner for it (see `has_runner`)."""

    def __str__(self) -> str:
        return self.value

    @property
    def text(self) -> str:
        """The state for people."""
        return NEEDS_RUNNER if self is CellState.NEEDS_RUNNER else self.value


def has_runner(published: Iterable[str]) -> bool:
    """True if any published cell (yanked or not) needed a self-hosted runner.

    Only the rows say so: pages are generated from them in jobs and on machines that do not know the runner's label.
    """
    return any(needs_runner(Cell.parse(cell)) for cell in published)


def runner_note(number: int) -> str:
    """One line about the number of cells that need a runner, with the next step."""
    return f"{NEEDS_RUNNER}: {count_text(number, 'CK cell')}; {RUNNER_HINT}"


def page_runner_note(matrix: Matrix, rows: Iterable[WheelRow]) -> str:
    """The plain text about cells that need a runner, for a page of all wheels; empty if there are none."""
    cells = () if has_runner(decisive_rows(rows)) else expand(matrix).cells
    number = sum(map(needs_runner, cells))
    return f"{count_text(number, 'more CK wheel')} would work, but this site does not build them." if number else ""


def decisive_rows(rows: Iterable[WheelRow]) -> dict[str, WheelRow]:
    """The row that counts for each cell id: the one that installers prefer, a yanked one only if there is no other."""
    ordered = sorted(rows, key=lambda row: (row.yanked is None, build_key(row.filename), row.published, row.filename))
    return {row.cell: row for row in ordered if row.cell}


@dataclass(frozen=True)
class CoveredCell:
    """A wanted cell and its decisive row, if it has one."""

    cell: Cell
    row: WheelRow | None
    has_runner: bool
    """Whether the factory has a runner, so that a cell that needs one is missing."""

    @property
    def state(self) -> CellState:
        """Published, yanked, or why there is no wheel."""
        if self.row is None:
            return CellState.MISSING if self.has_runner or not needs_runner(self.cell) else CellState.NEEDS_RUNNER
        return CellState.PUBLISHED if self.yanked is None else CellState.YANKED

    @property
    def yanked(self) -> str | None:
        """Why its wheel is yanked; None if it is not, or if there is none."""
        return self.row.yanked if self.row else None

    @property
    def unverified_reason(self) -> str:
        """Why the published wheel is not verified; empty if it is verified, or if none is published."""
        return unverified_reason(self.row) if self.row and self.state is CellState.PUBLISHED else ""


@dataclass(frozen=True)
class CoverageCounts:
    """Counts of wanted cells by state, and of excluded combinations by reason."""

    published: int
    yanked: int
    missing: int
    """Cells without a wheel, except those that need a runner."""
    needs_runner: int
    excluded: Reasons
    unverified: int
    """Published cells whose wheel is not verified; they count as published too."""

    @classmethod
    def count(cls, cells: Sequence[CoveredCell], excluded: Iterable[Excluded]) -> CoverageCounts:
        """Count cells and excluded combinations."""
        states, reasons = Counter(covered.state for covered in cells), Counter(item.reason for item in excluded)
        return cls(
            **{state.name.lower(): states[state] for state in CellState},
            excluded=tuple(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            unverified=sum(bool(covered.unverified_reason) for covered in cells),
        )

    @property
    def wanted(self) -> int:
        """Cells in the matrix."""
        return self.published + self.yanked + self.missing + self.needs_runner

    @property
    def excluded_combinations(self) -> int:
        """Combinations that a rule excludes."""
        return sum(number for _, number in self.excluded)


@dataclass(frozen=True)
class Coverage:
    """The coverage of the selected cells, in the order of matrix.yaml."""

    cells: tuple[CoveredCell, ...]
    excluded: tuple[Excluded, ...]
    unwanted: tuple[str, ...]
    """Sorted ids of published cells that are no longer in the matrix."""

    @property
    def counts(self) -> CoverageCounts:
        """The counts over all cells."""
        return CoverageCounts.count(self.cells, self.excluded)

    def counts_by(self, key: Callable[[Cell], Key]) -> dict[Key, CoverageCounts]:
        """The counts of each group of cells with the same `key`. Excluded combinations are grouped as cells too."""
        groups: dict[Key, tuple[list[CoveredCell], list[Excluded]]] = {}
        for covered in self.cells:
            groups.setdefault(key(covered.cell), ([], []))[0].append(covered)
        for item in self.excluded:
            groups.setdefault(key(item.cell), ([], []))[1].append(item)
        return {group: CoverageCounts.count(cells, excluded) for group, (cells, excluded) in groups.items()}


def compute_coverage(expansion: Expansion, rows: Iterable[WheelRow], only: str = "*") -> Coverage:
    """Compute the coverage of the cells and excluded combinations that match the glob `only`.

    Raises `InputError` if no cell matches.
    """
    decisive = decisive_rows(rows)
    wanted = {cell.id for cell in expansion.cells}
    runner = has_runner(decisive)
    return Coverage(
        tuple(CoveredCell(cell, decisive.get(cell.id), runner) for cell in select_cells(expansion, only)),
        tuple(item for item in expansion.excluded if matches_glob(item, only)),
        tuple(sorted(cell for cell in decisive if cell not in wanted and fnmatchcase(cell, only))),
    )
