"""Merge the rows of manifests that were published at the same time, so that neither hides a change of the other."""

from __future__ import annotations

from collections.abc import Iterable

from wheelfactory.release.evidence import merge_evidence
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.verified import merge_verified_gates


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
    times = {piece.key: piece.time for piece in newer.evidence}
    evidence = newer.evidence
    for piece in older.evidence:
        if piece.key not in times or times[piece.key] < piece.time:
            evidence = merge_evidence(evidence, piece)
    changes = {"yanked": newer.yanked or older.yanked, "evidence": evidence}
    return merge_verified_gates(newer, older).model_copy(update=changes)
