"""All gates in their order; each is a function from a `Subject` to a result, in a module of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from wheelfactory.cell import Backend, Cell
from wheelfactory.errors import InputError, VerificationError
from wheelfactory.matrix import expand
from wheelfactory.matrix.select import require
from wheelfactory.verify.archive import archive
from wheelfactory.verify.code_objects import code_objects
from wheelfactory.verify.contents import contents
from wheelfactory.verify.gate import Gate, Subject
from wheelfactory.verify.identity import identity
from wheelfactory.verify.importing import importing
from wheelfactory.verify.linking import linking
from wheelfactory.verify.members import record
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.verify.symbols import symbols
from wheelfactory.wheel.read import Wheel
from wheelfactory.wheel.record import read_record
from wheelfactory.workshop import Workshop

_COMPILED = frozenset({Backend.CK})

GATES: tuple[Gate, ...] = (
    Gate("identity", identity),
    Gate("record", record),
    Gate("contents", contents),
    Gate("linking", linking, backends=_COMPILED),
    Gate("code-objects", code_objects, backends=_COMPILED),
    Gate("symbols", symbols, backends=_COMPILED),
    Gate("import", importing, runs_code=True),
)
"""What is asked of a wheel whose archive can be opened.

Required gates must pass before it is published; the others run when they are asked for.
"""

EXTENDED = tuple(gate.name for gate in GATES if not gate.required)
"""The names of the gates that run when they are asked for."""


def verify(
    path: Path, workshop: Workshop, cell: Cell | None = None, extended: Collection[str] = ()
) -> tuple[GateResult, ...]:
    """What every gate says of a wheel, taken for `cell` (by default the one its build record names).

    The required gates run, and those named in `extended`; a gate that does not run says so. Raises
    `VerificationError` for a wheel without a build record, `InputError` for no wheel at all or for a cell that the
    matrix does not have.
    """
    opened = archive(path)
    if opened.status is Status.FAILED:  # nothing in it is read, so nothing else can be asked
        return (opened,)
    subject = _subject(path, workshop, cell)
    results: list[GateResult] = [opened]
    for gate in GATES:
        if subject.cell.backend in gate.backends:
            result = _result(gate, subject, extended, results)
            results.append(result.model_copy(update={"required": gate.required}))
    return tuple(results)


def _subject(path: Path, workshop: Workshop, cell: Cell | None) -> Subject:
    wheel = Wheel.open(path)
    found = read_record(wheel)
    if found is None:
        raise VerificationError(
            "no build record",
            path.name,
            "it is not a finished wheel of this factory: run `wheelfactory build` or `repair`",
        )
    cell = require(expand(workshop.matrix), cell or Cell.parse(found.cell))
    return Subject(wheel, found, cell, workshop)


def _result(gate: Gate, subject: Subject, extended: Collection[str], before: Sequence[GateResult]) -> GateResult:
    if not gate.required and gate.name not in extended:
        return GateResult.not_run(gate.name, "not asked for")
    if gate.runs_code and refused(before):
        return GateResult.not_run(gate.name, "an earlier gate refused the wheel")
    return gate.check(subject)


def refused(results: Sequence[GateResult]) -> bool:
    """Whether a wheel with these results must not be published: a required gate did not pass, or any gate failed."""
    return not results or any(result.status is Status.FAILED or _missed(result) for result in results)


def _missed(result: GateResult) -> bool:
    return result.required and result.status is not Status.PASSED


def named(text: str) -> Iterator[str]:
    """The extended gates of a list such as ``ahead-of-time,interpreter``, or of the word ``all``.

    Raises `InputError` for a name that is none.
    """
    for name in EXTENDED if text == "all" else filter(None, text.split(",")):
        if name not in EXTENDED:
            raise InputError("no such extended gate", name, f"choose from all, {', '.join(EXTENDED)}")
        yield name
