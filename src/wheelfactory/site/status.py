"""Coverage -> lines for a person, Markdown for a page, an object for a program; the three say the same."""

from __future__ import annotations

from collections.abc import Mapping

from wheelfactory.site.coverage import Coverage, State, Tally
from wheelfactory.site.markdown import code, count_text, details, prose, table

SHOWN_REASONS = 10
"""Reasons that a person is shown; the others are counted. A full matrix has some 80."""


def cell_lines(coverage: Coverage) -> list[str]:
    """A line a cell: its id, and published, missing, or why it is yanked."""
    found = ((covered, covered.row.yanked if covered.row else None) for covered in coverage.cells)
    return [f"{covered.cell.id}  {covered.state}{'' if why is None else f': {why}'}" for covered, why in found]


def sum_lines(coverage: Coverage, place: str) -> list[str]:
    """The sums: wanted and published at `place`, missing, yanked, and what is excluded with the commonest reasons."""
    tally = coverage.tally
    others = [
        f"{number} are {state}" for number, state in ((tally.missing, "missing"), (tally.yanked, "yanked")) if number
    ]
    lines = [", ".join([f"{tally.published} of {tally.wanted} cells are published in {place}", *others])]
    if tally.excluded:
        lines.append(f"excluded: {_excluded(tally)}")
        lines += [f"  {number:5}  {reason}" for reason, number in tally.excluded[:SHOWN_REASONS]]
        if rest := tally.excluded[SHOWN_REASONS:]:
            combinations = sum(number for _, number in rest)
            lines.append(f"         {combinations} for {len(rest)} more reasons, which --json lists")
    lines += [f"published, and not in the matrix any more: {cell}" for cell in coverage.unwanted]
    return lines


def _excluded(tally: Tally) -> str:
    return f"{count_text(tally.combinations, 'combination')}, for {count_text(len(tally.excluded), 'reason')}"


def as_json(coverage: Coverage, place: str) -> dict[str, object]:
    """Everything: the sums, by backend and by (ROCm, torch) too, every reason and every cell."""
    backends = coverage.tallies(lambda cell: str(cell.backend))
    squares = coverage.tallies(lambda cell: (str(cell.backend), cell.rocm, cell.torch))
    return {
        "target": place,
        **_numbers(coverage.tally),
        "excluded": _reasons(coverage.tally),
        "backends": {backend: _numbers(tally) for backend, tally in backends.items()},
        "squares": [
            {"backend": backend, "rocm": rocm, "torch": torch, **_numbers(tally), "excluded": _reasons(tally)}
            for (backend, rocm, torch), tally in squares.items()
        ],
        "cells": [
            {
                "id": covered.cell.id,
                "state": str(covered.state),
                "filename": covered.row.filename if covered.row else None,
                "yanked": covered.row.yanked if covered.row else None,
            }
            for covered in coverage.cells
        ],
        "unwanted": list(coverage.unwanted),
    }


def _numbers(tally: Tally) -> dict[str, int]:
    return {
        "wanted": tally.wanted,
        "published": tally.published,
        "yanked": tally.yanked,
        "missing": tally.missing,
        "combinations-excluded": tally.combinations,
    }


def _reasons(tally: Tally) -> list[dict[str, object]]:
    return [{"reason": reason, "combinations": number} for reason, number in tally.excluded]


def as_markdown(coverage: Coverage) -> str:
    """For a page or a job summary: sums by backend, by ROCm and torch, what is missing or yanked, and why not."""
    header = ("", "wanted", "published", "yanked", "missing", "excluded combinations")
    tally = coverage.tally
    backends = coverage.tallies(lambda cell: str(cell.backend))
    squares = coverage.tallies(lambda cell: f"ROCm {cell.rocm}, torch {cell.torch}")
    wanted = {square: own for square, own in squares.items() if own.wanted}
    missing = [f"- {code(covered.cell.id)}" for covered in coverage.cells if covered.state is State.MISSING]
    lines = ["## Coverage", "", *table(header, _counts({**backends, "**all**": tally})), ""]
    lines += [*table(header, _counts(wanted)), ""]
    lines += [
        f"- {code(covered.cell.id)} is yanked: {prose(covered.row.yanked)}"
        for covered in coverage.cells
        if covered.row and covered.row.yanked is not None
    ]
    lines += [f"- {code(cell)} is published, and not in the matrix any more" for cell in coverage.unwanted]
    lines += ["", *details(f"{count_text(len(missing), 'missing cell')}", missing)] if missing else []
    if tally.excluded:
        reasons = table(("combinations", "reason"), ((str(number), prose(reason)) for reason, number in tally.excluded))
        lines += ["", *details(f"Excluded: {_excluded(tally)}", reasons)]
    return "\n".join([*lines, ""])


def _counts(tallies: Mapping[str, Tally]) -> list[list[str]]:
    return [[name, *map(str, _numbers(tally).values())] for name, tally in tallies.items()]
