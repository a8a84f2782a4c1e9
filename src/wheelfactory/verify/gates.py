"""All gates in their order; each is a function from its subject to a result, in a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from wheelfactory.build.executor import BuildHost
from wheelfactory.build.fallback import read_fallback_project
from wheelfactory.core.cell import FALLBACK_NAME, Backend, Cell
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.core.host import Host
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.select import require_in_matrix
from wheelfactory.verify.ahead_of_time import check_ahead_of_time
from wheelfactory.verify.archive import check_archive
from wheelfactory.verify.code_objects import check_code_objects
from wheelfactory.verify.contents import check_contents, check_fallback_contents
from wheelfactory.verify.fallback_importing import check_fallback_import as fallback_importing
from wheelfactory.verify.fallback_numbers import check_fallback_numbers as fallback_numbers
from wheelfactory.verify.gate import AnySubject, FallbackSubject, Gate, Subject
from wheelfactory.verify.gpu import check_on_gpu
from wheelfactory.verify.identity import check_fallback_identity, check_identity
from wheelfactory.verify.importing import check_import
from wheelfactory.verify.interpreter import check_in_interpreter
from wheelfactory.verify.linking import check_linking
from wheelfactory.verify.record import check_record as members
from wheelfactory.verify.result import Finding, GateResult, Status
from wheelfactory.verify.symbols import check_symbols
from wheelfactory.wheel.build_record import read_build_record
from wheelfactory.wheel.read import Wheel

_COMPILED, _TRITON = frozenset({Backend.CK}), frozenset({Backend.TRITON})

GATES: tuple[Gate[Subject], ...] = (
    Gate("identity", check_identity, on_publish=True),
    Gate("record", members, on_publish=True),
    Gate("contents", check_contents, on_publish=True),
    Gate("linking", check_linking, on_publish=True, backends=_COMPILED),
    Gate("code-objects", check_code_objects, on_publish=True, backends=_COMPILED),
    Gate("symbols", check_symbols, backends=_COMPILED),
    Gate("import", check_import, runs_code=True),
    Gate("ahead-of-time", check_ahead_of_time, slow=True, runs_code=True, backends=_TRITON),
    Gate("interpreter", check_in_interpreter, slow=True, runs_code=True, backends=_TRITON),
    Gate("gpu", check_on_gpu, required=False, runs_code=True),
)
"""What is asked of a wheel whose archive can be opened.

Required gates must pass before it is published; the others run when they are asked for.
"""

FALLBACK_GATES: tuple[Gate[FallbackSubject], ...] = (
    Gate("identity", check_fallback_identity, on_publish=True),
    Gate("record", members, on_publish=True),
    Gate("contents", check_fallback_contents, on_publish=True),
    Gate("import", fallback_importing, runs_code=True),
    Gate("numbers", fallback_numbers, runs_code=True),
)
"""What is asked of a wheel of flash-attention-amd; all of it is required, as it needs neither a GPU nor ROCm."""

PUBLISH_GATES = tuple(gate for gate in GATES if gate.on_publish)
"""The gates that are asked again where a wheel is published: they run nothing of it."""

EXTENDED_GATES = tuple(gate.name for gate in GATES if not gate.required)
"""The names of the gates that run when they are asked for."""

FALLBACK_REQUIRED_GATES = ("archive", *(gate.name for gate in FALLBACK_GATES))
FALLBACK_PUBLISH_GATES = tuple(gate for gate in FALLBACK_GATES if gate.on_publish)


def verify(
    path: Path,
    cell: Cell | None = None,
    extended: Collection[str] = (),
    find_gate_host: Callable[[Cell], BuildHost | None] = lambda _: None,
    gates: Sequence[Gate[Subject]] | None = None,
    *,
    may_build: bool = True,
    quick: bool = False,
    matrix: Matrix,
    host: Host,
    environ: Mapping[str, str],
    cache: Path,
) -> tuple[GateResult, ...]:
    """What every gate, or each of `gates`, says of a wheel, taken for `cell` (or the one its build record names).

    The required gates run, and those named in `extended`; with `quick` the slow ones do not, and are not required.
    `elsewhere` gives where the torch of a CK cell is, if that is not this machine; a gate that does not run says so. A
    plain build to compare with is made if none is kept and `may_build`. A wheel that cannot be read far enough to ask
    more has the results up to there. Raises `InputError` for a file whose name is no wheel's, or for a cell that the
    matrix does not have, `SourceError` if the sources to compare with cannot be had, and `BuildError` if what a gate
    needs cannot be installed.
    """
    if Wheel.open(path).name == FALLBACK_NAME:
        if cell:
            raise InputError("of no cell", path.name, "leave --cell out: it is the same for every ROCm and torch")
        return verify_fallback(path, may_build=may_build, environ=environ, cache=cache)
    opened = check_archive(path)
    if opened.status is Status.FAILED:
        return (opened,)
    wheel = Wheel.open(path)
    try:
        record = read_build_record(wheel)
    except InputError as error:
        return opened, _unreadable("identity", wheel, error)
    if record is None:
        cure = "it is not a finished wheel of this factory: run `wheelfactory build` or `repair`"
        finding = Finding(file=path.name, expected="a build record", found="none", remedy=cure)
        return opened, GateResult.from_findings("identity", [finding])
    cell = require_in_matrix(expand(matrix), cell or Cell.parse(record.cell))
    subject = Subject(wheel, record, cell, matrix, host, environ, cache, find_gate_host, may_build)
    asked = [gate for gate in (GATES if gates is None else gates) if cell.backend in gate.backends]
    return _results(asked, subject, extended, opened, quick=quick)


def verify_fallback(
    path: Path,
    gates: Sequence[Gate[FallbackSubject]] = FALLBACK_GATES,
    *,
    may_build: bool = True,
    environ: Mapping[str, str],
    cache: Path,
) -> tuple[GateResult, ...]:
    """What each of `gates` says of a wheel of flash-attention-amd, taken for one of the checkout's sources.

    Raises `InputError` for a file whose name is no wheel's, or if the checkout has no such sources.
    """
    opened = check_archive(path)
    if opened.status is Status.FAILED:
        return (opened,)
    return _results(
        gates, FallbackSubject(Wheel.open(path), read_fallback_project(), environ, cache, may_build), (), opened
    )


def _results(
    gates: Sequence[Gate[AnySubject]],
    subject: AnySubject,
    extended: Collection[str],
    opened: GateResult,
    *,
    quick: bool = False,
) -> tuple[GateResult, ...]:
    results = [opened]
    for gate in gates:
        left_out = quick and gate.slow
        if left_out:
            result = GateResult.not_run(gate.name, "left out by --quick")
        elif not gate.required and gate.name not in extended:
            result = GateResult.not_run(gate.name, "not asked for")
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
                hint = f"{error.hint}; run with another Python, or leave the gate {gate.name} out: `run --quick`"
                raise BuildError(error.what, error.which, hint) from None
        results.append(result.model_copy(update={"required": gate.required and not left_out}))
    return tuple(results)


def _unreadable(gate: str, wheel: Wheel, error: InputError) -> GateResult:
    cure = error.hint or "build or download it again"
    finding = Finding(file=wheel.path.name, expected="what can be read", found=str(error), remedy=cure)
    return GateResult.from_findings(gate, [finding])


def required_gates(backend: Backend) -> tuple[str, ...]:
    """The names of the gates that a wheel of this backend must pass before it is published."""
    return ("archive", *(gate.name for gate in GATES if gate.required and backend in gate.backends))


def is_refused(results: Sequence[GateResult]) -> bool:
    """Whether a wheel with these results must not be published: a required gate did not pass, or any gate failed."""
    return not results or any(
        result.status is Status.FAILED or (result.required and result.status is not Status.PASSED) for result in results
    )


def parse_extended(text: str) -> Iterator[str]:
    """The extended gates of a list of names with commas between, or of the word ``all``.

    Raises `InputError` for a name that is none.
    """
    for name in EXTENDED_GATES if text == "all" else filter(None, text.split(",")):
        if name not in EXTENDED_GATES:
            raise InputError("no such extended gate", name, f"choose from all, {', '.join(EXTENDED_GATES)}")
        yield name
