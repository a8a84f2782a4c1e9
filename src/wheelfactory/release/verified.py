"""Whether a published wheel passed the gates that count for it, and merging two rows of one wheel.

This checkout says which gates are required. One that a row does not name was added after its wheel was published.
"""

from __future__ import annotations

from collections.abc import Iterable

from wheelfactory.core.cell import Cell
from wheelfactory.core.published import added_later, name_gates, why_unverified
from wheelfactory.release.evidence import merge_evidence
from wheelfactory.release.manifest import WheelRow
from wheelfactory.verify.gates import required_gates
from wheelfactory.verify.result import Status


def unverified_reason(row: WheelRow, *, is_published: bool = True) -> str:
    """Why the wheel of a row is not verified, such as ``not checked: numbers``; empty if it is.

    A row that is not yet published must name every gate. A dependency from PyPI needs none: its digest is pinned.
    """
    required, gates = _required(row), {gate.gate: str(gate.status) for gate in row.gates}
    missing = {} if is_published else dict.fromkeys(required, str(Status.NOT_RUN))
    return why_unverified(required, {**missing, **gates}.items())


def unchecked_since(row: WheelRow) -> str:
    """Which gates were added after the wheel of a row was published: ``added later: numbers``; empty if none."""
    later = added_later(_required(row), [gate.gate for gate in row.gates])
    return f"added later: {name_gates(later)}" if later else ""


def _required(row: WheelRow) -> tuple[str, ...]:
    return required_gates(Cell.parse(row.cell).backend if row.cell else row.product)


def merge_verified_gates(published: WheelRow, row: WheelRow) -> WheelRow:
    """The published row, with the gates of `row` if these verify the wheel and the published gates do not.

    Both rows are of the same bytes, so a gate that passed before and did not run this time stays passed.
    """
    lacking = unverified_reason(published) or unchecked_since(published)
    if not lacking or unverified_reason(row) or unchecked_since(row):
        return published
    passed = {gate.gate: gate for gate in published.gates if gate.status is Status.PASSED}
    gates = tuple(passed.get(gate.gate, gate) if gate.status is Status.NOT_RUN else gate for gate in row.gates)
    return published.model_copy(update={"gates": gates})


def merge_rows(newer: Iterable[WheelRow], older: Iterable[WheelRow]) -> tuple[WheelRow, ...]:
    """The rows of `newer` with what only `older` has: rows, yanks, evidence and gates. Rows are only ever added.

    The result equals `newer` if that was made from `older`. Of two rows of one name with different files, the newer
    one counts.
    """
    rows = {row.filename: row for row in newer}
    for row in older:
        rows[row.filename] = _merge_row(rows.get(row.filename, row), row)
    return tuple(rows.values())


def _merge_row(newer: WheelRow, older: WheelRow) -> WheelRow:
    if newer.sha256 != older.sha256:
        return newer
    changes = {"yanked": newer.yanked or older.yanked, "evidence": merge_evidence(*older.evidence, *newer.evidence)}
    return merge_verified_gates(newer, older).model_copy(update=changes)
