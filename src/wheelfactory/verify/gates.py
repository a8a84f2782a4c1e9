"""Run the gates in order; each gate is a function from a subject to a result, in its own module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wheelfactory.build.executor import BuildHost
from wheelfactory.build.pure import read_pure_project
from wheelfactory.core.cell import AITER_NAME, FALLBACK_NAME, WITHOUT_CELL, Backend, Cell
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.select import require_in_matrix
from wheelfactory.verify.code_objects import check_code_objects
from wheelfactory.verify.contents import check_contents, check_pure_contents
from wheelfactory.verify.emulation import check_in_emulation
from wheelfactory.verify.fallback import check_fallback_accuracy, check_fallback_import
from wheelfactory.verify.gate import AnySubject, Gate, PureSubject, Subject
from wheelfactory.verify.gpu import check_on_gpu
from wheelfactory.verify.identity import check_identity, check_pure_identity
from wheelfactory.verify.importing import check_import
from wheelfactory.verify.record import check_archive, check_record
from wheelfactory.verify.result import Finding, GateResult, Status
from wheelfactory.verify.symbols import check_linking, check_symbols
from wheelfactory.wheel.build_record import read_build_record
from wheelfactory.wheel.read import Wheel

_COMPILED, _TRITON = frozenset({Backend.CK}), frozenset({Backend.TRITON})

# the gates after `check_archive`. Required gates must pass before publishing; the others run on request. Gates that
# only read come first, so that code of a wheel that they refuse never runs
GATES: tuple[Gate[Subject], ...] = (
    Gate("identity", check_identity, on_publish=True),
    Gate("record", check_record, on_publish=True),
    Gate("contents", check_contents, on_publish=True),
    Gate("linking", check_linking, on_publish=True, backends=_COMPILED),
    Gate("code-objects", check_code_objects, on_publish=True, backends=_COMPILED),
    Gate("symbols", check_symbols, backends=_COMPILED),
    Gate("import", check_import, runs_code=True),
    Gate("emulation", check_in_emulation, slow=True, runs_code=True, backends=_TRITON),
    Gate("gpu", check_on_gpu, required=False, runs_code=True),
)

_READING: tuple[Gate[PureSubject], ...] = (
    Gate("identity", check_pure_identity, on_publish=True),
    Gate("record", check_record, on_publish=True),
    Gate("contents", check_pure_contents, on_publish=True),
)

PURE_GATES: Mapping[str, tuple[Gate[PureSubject], ...]] = {
    # all are required, because none needs a GPU or ROCm
    FALLBACK_NAME: (
        *_READING,
        Gate("import", check_fallback_import, runs_code=True),
        Gate("numbers", check_fallback_accuracy, runs_code=True),
    ),
    # its code runs with each flash-attn wheel that takes its kernels from it
    AITER_NAME: _READING,
}
"""The gates of each wheel of `WITHOUT_CELL`."""


def runs_on_publish(gate: Gate[Any]) -> bool:
    """Whether a gate runs again when a wheel is published; such a gate runs no code of the wheel."""
    return gate.on_publish


def proves(gate: Gate[Any]) -> bool:
    """Whether a gate is slow, so that its reports are cached as proofs, or only reads and runs before those."""
    return gate.on_publish or gate.slow


EXTENDED_GATES = tuple(gate.name for gate in GATES if not gate.required)
"""The names of the gates that run only on request."""


def verify(
    path: Path,
    cell: Cell | None = None,
    extended: Collection[str] = (),
    find_gate_host: Callable[[Cell], BuildHost | None] = lambda _: None,
    selected: Callable[[Gate[Any]], bool] = lambda _: True,
    *,
    may_build: bool = True,
    quick: bool = False,
    context: Context,
) -> tuple[GateResult, ...]:
    """Run the `selected` gates (default: all) on a wheel of this factory; return their results.

    The cell of a flash-attn wheel is `cell`, or the one in its build record. Runs the required gates and those in
    `extended`; `quick` skips the slow ones and makes them optional. If the archive or the build record is damaged, no
    further gate runs. For `find_gate_host` and `may_build` see `Subject`.

    Raises `InputError` if the file name is not a wheel's or the cell is not in the matrix, `SourceError` if the sources
    to compare with are unavailable, and `BuildError` if the environment of a gate cannot be installed.
    """
    name = Wheel.open(path).name  # the file name decides which gates apply
    if cell and name in WITHOUT_CELL:
        raise InputError("this wheel has no cell", path.name, "omit --cell: it is the same for every ROCm and torch")
    project = read_pure_project(name, context.matrix.dependencies) if name in WITHOUT_CELL else None
    opened = check_archive(path)
    if opened.status is Status.FAILED:  # every other gate would fail to open it too
        return (opened,)
    wheel = Wheel.open(path)
    if project:
        pure = PureSubject(wheel, project, context.environ, context.cache, may_build)
        return _run_gates([gate for gate in PURE_GATES[name] if selected(gate)], pure, (), opened)
    try:
        record = read_build_record(wheel)
    except InputError as error:
        return opened, _unreadable("identity", wheel, error)
    if record is None:
        remedy = "run `wheelfactory build` or `wheelfactory repair`: it is not a finished wheel of this factory"
        finding = Finding(file=path.name, expected="a build record", found="none", remedy=remedy)
        return opened, GateResult.from_findings("identity", [finding])
    cell = require_in_matrix(expand(context.matrix), cell or Cell.parse(record.cell))
    subject = Subject(wheel, record, cell, context, find_gate_host, may_build)
    gates = [gate for gate in GATES if selected(gate) and cell.backend in gate.backends]
    return _run_gates(gates, subject, extended, opened, quick=quick)


def _run_gates(
    gates: Sequence[Gate[AnySubject]],
    subject: AnySubject,
    extended: Collection[str],
    opened: GateResult,
    *,
    quick: bool = False,
) -> tuple[GateResult, ...]:
    results = [opened]
    for gate in gates:
        skipped = quick and gate.slow
        if skipped:
            result = GateResult.not_run(gate.name, "skipped by --quick")
        elif not gate.required and gate.name not in extended:
            result = GateResult.not_run(gate.name, "not requested")
        elif gate.runs_code and is_refused(results):
            result = GateResult.not_run(gate.name, "an earlier gate refused the wheel")
        else:
            try:
                result = gate.check(subject)
            except InputError as error:
                result = _unreadable(gate.name, subject.wheel, error)
            except BuildError as error:
                if not gate.slow:
                    raise
                hint = f"{error.hint}; use another Python, or skip the gate {gate.name} with `run --quick`"
                raise BuildError(error.what, error.which, hint) from None
        results.append(result.model_copy(update={"required": gate.required and not skipped}))
    return tuple(results)


def _unreadable(gate: str, wheel: Wheel, error: InputError) -> GateResult:
    remedy = error.hint or "build or download it again"
    finding = Finding(file=wheel.path.name, expected="an undamaged wheel", found=str(error), remedy=remedy)
    return GateResult.from_findings(gate, [finding])


def required_gates(kind: Backend | str) -> tuple[str, ...]:
    """Return the names of the gates that a wheel must pass before publishing: of a backend, or of `WITHOUT_CELL`."""
    if isinstance(kind, Backend):
        gates = [gate.name for gate in GATES if gate.required and kind in gate.backends]
    else:
        gates = [gate.name for gate in PURE_GATES[kind]]
    return ("archive", *gates)


def is_refused(results: Sequence[GateResult]) -> bool:
    """Return whether the results forbid publishing: a required gate did not pass, any gate failed, or none ran."""
    # an empty list must never count as passed
    return not results or any(
        result.status is Status.FAILED or (result.required and result.status is not Status.PASSED) for result in results
    )


def parse_extended(text: str) -> Iterator[str]:
    """Parse a comma-separated list of extended gates, or ``all``. Raises `InputError` for an unknown name."""
    for name in EXTENDED_GATES if text == "all" else filter(None, text.split(",")):
        if name not in EXTENDED_GATES:
            raise InputError("unknown extended gate", name, f"choose from all, {', '.join(EXTENDED_GATES)}")
        yield name
