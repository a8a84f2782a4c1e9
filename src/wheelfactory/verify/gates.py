"""The required gates, in order; deeper ones stand beside them, each a function from a `Subject` to a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wheelfactory.cell import Cell
from wheelfactory.errors import VerificationError
from wheelfactory.matrix import expand
from wheelfactory.matrix.select import require
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.identity import identity
from wheelfactory.verify.importing import importing
from wheelfactory.verify.members import record
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import read_record
from wheelfactory.workshop import Workshop

Gate = Callable[[Subject], GateResult]

REQUIRED: Mapping[str, Gate] = {"identity": identity, "record": record, "import": importing}
"""The gates that every wheel must pass before it is published."""


def verify(path: Path, workshop: Workshop, cell: Cell | None = None) -> tuple[GateResult, ...]:
    """What every required gate says of a wheel, taken for `cell` (by default the one its build record names).

    A gate after a failed one still runs, except the import, which would run code of a wheel that is not what
    it says. Raises `VerificationError` for a wheel without a build record, `InputError` for no wheel at all or
    for a cell that the matrix does not have.
    """
    wheel = Wheel.open(path)
    found = read_record(wheel)
    if found is None:
        raise VerificationError(
            "no build record",
            path.name,
            "it is not a finished wheel of this factory: run `wheelfactory build` or `repair`",
        )
    cell = require(expand(workshop.matrix), cell or Cell.parse(found.cell))
    subject = Subject(wheel, found, cell, workshop)
    results: list[GateResult] = []
    for name, gate in REQUIRED.items():
        if name == "import" and any(result.status is not Status.PASSED for result in results):
            results.append(GateResult(gate=name, status=Status.NOT_RUN, detail="an earlier gate refused the wheel"))
        else:
            results.append(gate(subject))
    return tuple(results)


def refused(results: Sequence[GateResult]) -> bool:
    """Whether a wheel with these results must not be published: a required gate did not pass, or any gate failed."""
    passed = {result.gate for result in results if result.status is Status.PASSED}
    return not passed.issuperset(REQUIRED) or any(result.status is Status.FAILED for result in results)
