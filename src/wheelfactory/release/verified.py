"""Whether a published wheel passed every gate that this checkout requires. The row itself does not say what counts."""

from __future__ import annotations

from wheelfactory.core.cell import AITER_NAME, FALLBACK_NAME, Cell
from wheelfactory.core.published import why_unverified
from wheelfactory.release.manifest import WheelRow
from wheelfactory.verify.gates import AITER_REQUIRED_GATES, FALLBACK_REQUIRED_GATES, required_gates
from wheelfactory.verify.result import Status


def unverified_reason(row: WheelRow) -> str:
    """Why the wheel of a row is not verified, such as ``not checked: numbers``; empty if it is.

    A dependency from PyPI needs no gate: matrix.yaml pins its digest.
    """
    required: tuple[str, ...] = ()
    if row.cell:
        required = required_gates(Cell.parse(row.cell).backend)
    elif row.project == FALLBACK_NAME:
        required = FALLBACK_REQUIRED_GATES
    elif row.project == AITER_NAME:
        required = AITER_REQUIRED_GATES
    return why_unverified(required, ((gate.gate, str(gate.status)) for gate in row.gates))


def merge_verified_gates(published: WheelRow, row: WheelRow) -> WheelRow:
    """The published row, with the gates of `row` if these verify the wheel and the published gates do not.

    Both rows are of the same bytes, so a gate that passed before and did not run this time stays passed.
    """
    if not unverified_reason(published) or unverified_reason(row):
        return published
    passed = {gate.gate: gate for gate in published.gates if gate.status is Status.PASSED}
    gates = tuple(passed.get(gate.gate, gate) if gate.status is Status.NOT_RUN else gate for gate in row.gates)
    return published.model_copy(update={"gates": gates})
