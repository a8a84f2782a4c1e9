"""Whether a published wheel is verified, by what this checkout requires; what its row calls required does not count."""

from __future__ import annotations

from wheelfactory.core.cell import FALLBACK_NAME, Cell
from wheelfactory.core.verified import why_unverified
from wheelfactory.release.manifest import WheelRow
from wheelfactory.verify.gates import FALLBACK_REQUIRED_GATES, required_gates
from wheelfactory.verify.result import Status


def unverified_reason(row: WheelRow) -> str:
    """Why the wheel of a row is not verified, such as ``not checked: numbers``; empty if it is.

    Nothing is required of a dependency, which matrix.yaml pins.
    """
    required: tuple[str, ...] = ()
    if row.cell:
        required = required_gates(Cell.parse(row.cell).backend)
    elif row.project == FALLBACK_NAME:
        required = FALLBACK_REQUIRED_GATES
    return why_unverified(required, ((gate.gate, str(gate.status)) for gate in row.gates))


def merge_verified_gates(published: WheelRow, row: WheelRow) -> WheelRow:
    """The published row with the gates of `row`, a row of the same bytes, if only those verify the wheel.

    Otherwise the published row as it is, so that it never says less than before. For the same reason a gate that
    passed and did not run this time stays passed.
    """
    if not unverified_reason(published) or unverified_reason(row):
        return published
    passed = {gate.gate: gate for gate in published.gates if gate.status is Status.PASSED}
    gates = tuple(passed.get(gate.gate, gate) if gate.status is Status.NOT_RUN else gate for gate in row.gates)
    return published.model_copy(update={"gates": gates})
