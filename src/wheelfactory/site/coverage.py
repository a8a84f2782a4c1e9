"""Coverage of the matrix by published wheels: wanted, published, yanked, missing, and excluded with reasons.

It is rendered as text, Markdown or JSON with the same content.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import TypeVar

from wheelfactory.core.cell import Cell
from wheelfactory.matrix.expand import Excluded, Expansion
from wheelfactory.matrix.select import matches_glob, select_cells
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import unverified_reason
from wheelfactory.site.markdown import code_span, count_text, details, escape, table

Key = TypeVar("Key", bound=Hashable)

SHOWN_REASONS = 10
"""Number of reasons shown; the others are counted. A full matrix has some 80."""

Reasons = tuple[tuple[str, int], ...]
"""Each reason with the number of combinations it excludes, the most common first."""


class CellState(str, Enum):
    """The state of a wanted cell."""

    PUBLISHED = "published"
    YANKED = "yanked"
    MISSING = "missing"

    def __str__(self) -> str:
        return self.value


def decisive_rows(rows: Iterable[WheelRow]) -> dict[str, WheelRow]:
    """The row that counts for each cell id: the one published last, and a yanked one only if there is no other."""
    # a cell has several rows if its yanked wheel was replaced by one with a build tag
    ordered = sorted(rows, key=lambda row: (row.yanked is None, row.published, row.filename))
    return {row.cell: row for row in ordered if row.cell}


def available_cells(rows: Iterable[WheelRow]) -> frozenset[str]:
    """The ids of cells with a published wheel that is not yanked."""
    return frozenset(row.cell for row in rows if row.cell and row.yanked is None)


@dataclass(frozen=True)
class CoveredCell:
    """A wanted cell and its decisive row, if it has one."""

    cell: Cell
    row: WheelRow | None

    @property
    def state(self) -> CellState:
        """Published, yanked or missing."""
        if self.row is None:
            return CellState.MISSING
        return CellState.PUBLISHED if self.row.yanked is None else CellState.YANKED

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
    excluded: Reasons
    unverified: int = 0
    """Published cells whose wheel is not verified; they count as published too."""

    @property
    def wanted(self) -> int:
        """Cells in the matrix."""
        return self.published + self.yanked + self.missing

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
        return self.counts_by(lambda _: None).get(None, CoverageCounts(0, 0, 0, ()))

    def counts_by(self, key: Callable[[Cell], Key]) -> dict[Key, CoverageCounts]:
        """The counts of each group of cells with the same `key`. Excluded combinations are grouped as cells too."""
        states: dict[Key, Counter[CellState]] = defaultdict(Counter)
        not_verified: Counter[Key] = Counter()
        reasons: dict[Key, Counter[str]] = defaultdict(Counter)
        for covered in self.cells:
            states[key(covered.cell)][covered.state] += 1
            not_verified[key(covered.cell)] += bool(covered.unverified_reason)
        for item in self.excluded:
            reasons[key(Cell.from_axes(*item.combination))][item.reason] += 1
        return {
            group: CoverageCounts(
                states[group][CellState.PUBLISHED],
                states[group][CellState.YANKED],
                states[group][CellState.MISSING],
                tuple(sorted(reasons[group].items(), key=lambda item: (-item[1], item[0]))),
                not_verified[group],
            )
            for group in {**states, **reasons}
        }


def compute_coverage(expansion: Expansion, rows: Iterable[WheelRow], only: str = "*") -> Coverage:
    """Compute the coverage of the cells and excluded combinations that match the glob `only`.

    Raises `InputError` if no cell matches.
    """
    decisive = decisive_rows(rows)
    wanted = {cell.id for cell in expansion.cells}
    return Coverage(
        tuple(CoveredCell(cell, decisive.get(cell.id)) for cell in select_cells(expansion, only)),
        tuple(item for item in expansion.excluded if matches_glob(item, only)),
        tuple(sorted(cell for cell in decisive if cell not in wanted and fnmatchcase(cell, only))),
    )


def cell_lines(coverage: Coverage) -> list[str]:
    """One line per cell: its id, its state, and why it is yanked or not verified."""
    lines = []
    for covered in coverage.cells:
        yanked = covered.row.yanked if covered.row else None
        more = (
            f", {covered.unverified_reason}" if covered.unverified_reason else "" if yanked is None else f": {yanked}"
        )
        lines.append(f"{covered.cell.id}  {covered.state}{more}")
    return lines


def summary_lines(coverage: Coverage, target: str) -> list[str]:
    """The counts as text. `target` names the release; only the most common reasons are listed."""
    counts = coverage.counts
    states = ((counts.unverified, "not verified"), (counts.missing, "missing"), (counts.yanked, "yanked"))
    others = [f"{number} are {state}" for number, state in states if number]
    lines = [", ".join([f"{counts.published} of {counts.wanted} cells are published in {target}", *others])]
    if counts.excluded:
        lines.append(f"excluded: {_excluded(counts)}")
        lines += [f"  {number:5}  {reason}" for reason, number in counts.excluded[:SHOWN_REASONS]]
        if rest := counts.excluded[SHOWN_REASONS:]:
            combinations = sum(number for _, number in rest)
            lines.append(f"         {combinations} for {len(rest)} more reasons (see --json)")
    lines += [f"published, but no longer in the matrix: {cell}" for cell in coverage.unwanted]
    return lines


def _excluded(counts: CoverageCounts) -> str:
    return (
        f"{count_text(counts.excluded_combinations, 'combination')}, for {count_text(len(counts.excluded), 'reason')}"
    )


def coverage_json(coverage: Coverage, target: str) -> dict[str, object]:
    """The coverage as a JSON object: counts in total, by backend, and by (ROCm, torch); every reason and every cell."""
    backends = coverage.counts_by(lambda cell: str(cell.backend))
    squares = coverage.counts_by(lambda cell: (str(cell.backend), cell.rocm, cell.torch))
    return {
        "target": target,
        **_numbers(coverage.counts),
        "excluded": _reasons(coverage.counts),
        "backends": {backend: _numbers(counts) for backend, counts in backends.items()},
        "squares": [
            {"backend": backend, "rocm": rocm, "torch": torch, **_numbers(counts), "excluded": _reasons(counts)}
            for (backend, rocm, torch), counts in squares.items()
        ],
        "cells": [
            {
                "id": covered.cell.id,
                "state": str(covered.state),
                "filename": covered.row.filename if covered.row else None,
                "yanked": covered.row.yanked if covered.row else None,
                "unverified": covered.unverified_reason or None,
            }
            for covered in coverage.cells
        ],
        "unwanted": list(coverage.unwanted),
    }


def _numbers(counts: CoverageCounts) -> dict[str, int]:
    return {
        "wanted": counts.wanted,
        "published": counts.published,
        "unverified": counts.unverified,
        "yanked": counts.yanked,
        "missing": counts.missing,
        "combinations-excluded": counts.excluded_combinations,
    }


def _reasons(counts: CoverageCounts) -> list[dict[str, object]]:
    return [{"reason": reason, "combinations": number} for reason, number in counts.excluded]


def coverage_markdown(coverage: Coverage) -> str:
    """The coverage as Markdown for a page or a job summary."""
    header = ("", "wanted", "published", "not verified", "yanked", "missing", "excluded combinations")
    counts = coverage.counts
    backends = coverage.counts_by(lambda cell: str(cell.backend))
    squares = coverage.counts_by(lambda cell: f"ROCm {cell.rocm}, torch {cell.torch}")
    wanted = {square: own for square, own in squares.items() if own.wanted}
    missing = [f"- {code_span(covered.cell.id)}" for covered in coverage.cells if covered.state is CellState.MISSING]
    lines = ["## Coverage", "", *table(header, _counts({**backends, "**all**": counts})), ""]
    lines += [*table(header, _counts(wanted)), ""]
    lines += [
        f"- {code_span(covered.cell.id)} is yanked: {escape(covered.row.yanked)}"
        for covered in coverage.cells
        if covered.row and covered.row.yanked is not None
    ]
    lines += [f"- {code_span(cell)} is published, but no longer in the matrix" for cell in coverage.unwanted]
    not_verified = [
        f"- {code_span(covered.cell.id)}: {escape(covered.unverified_reason)}"
        for covered in coverage.cells
        if covered.unverified_reason
    ]
    lines += (
        ["", *details(f"{count_text(len(not_verified), 'cell')} not verified", not_verified)] if not_verified else []
    )
    lines += ["", *details(f"{count_text(len(missing), 'missing cell')}", missing)] if missing else []
    if counts.excluded:
        reasons = table(
            ("combinations", "reason"), ((str(number), escape(reason)) for reason, number in counts.excluded)
        )
        lines += ["", *details(f"Excluded: {_excluded(counts)}", reasons)]
    return "\n".join([*lines, ""])


def _counts(counts_by_name: Mapping[str, CoverageCounts]) -> list[list[str]]:
    return [[name, *map(str, _numbers(counts).values())] for name, counts in counts_by_name.items()]
