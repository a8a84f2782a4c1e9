"""Run the gates in order; each gate is a function from a subject to a result, in its own module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from wheelfactory.build.executor import HERE, GateRunner
from wheelfactory.build.products import pin_product
from wheelfactory.core.cell import AITER_NAME, FALLBACK_NAME, FLASH_ATTN_FALLBACK, PRODUCTS, Backend, Cell
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.matrix.expand import expand, require_in_matrix
from wheelfactory.matrix.facts import Context
from wheelfactory.verify.code_objects import check_code_objects
from wheelfactory.verify.contents import (
    ExpectedContents,
    check_contents,
    check_product_contents,
    expected_from_aiter,
    expected_from_plain,
)
from wheelfactory.verify.emulation import check_in_emulation
from wheelfactory.verify.fallback import check_fallback_accuracy, check_fallback_import
from wheelfactory.verify.gate import AnySubject, Gate, ProductSubject, Subject
from wheelfactory.verify.gpu import check_on_gpu
from wheelfactory.verify.identity import check_identity, check_product_identity
from wheelfactory.verify.importing import check_import
from wheelfactory.verify.record import check_archive, check_record
from wheelfactory.verify.result import Finding, GateResult, Status
from wheelfactory.verify.symbols import check_linking, check_symbols
from wheelfactory.wheel.read import BuildRecord, Wheel, read_build_record

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


def product_gates(
    expect: Callable[[ProductSubject], ExpectedContents], sizes: range, *more: Gate[ProductSubject]
) -> tuple[Gate[ProductSubject], ...]:
    """Return the gates of a product, all required: the gates of every product, and `more`.

    `expect` derives the contents from the plain build of the product's sources; `sizes` are those allowed, in bytes.
    """
    return (
        Gate("identity", check_product_identity, on_publish=True),
        Gate("record", check_record, on_publish=True),
        Gate("contents", partial(check_product_contents, expect=expect, sizes=sizes), on_publish=True),
        *more,
    )


PRODUCT_GATES: Mapping[str, tuple[Gate[ProductSubject], ...]] = {
    FALLBACK_NAME: product_gates(
        expected_from_plain,
        range(1_000_001),  # its sources have about 100 kB
        Gate("import", check_fallback_import, runs_code=True),
        Gate("numbers", check_fallback_accuracy, runs_code=True),
    ),
    FLASH_ATTN_FALLBACK: product_gates(
        expected_from_plain, range(100_001), Gate("import", check_fallback_import, runs_code=True)
    ),
    # its code runs with each flash-attn wheel that takes its kernels from it. Commit 9bab8388 makes 4.3 MB; AMD's
    # wheels with ROCm modules have 460 MB
    AITER_NAME: product_gates(expected_from_aiter, range(1_000_000, 20_000_001)),
}
"""The gates of each product."""

EXTENDED_GATES = tuple(gate.name for gate in GATES if not gate.required)
"""The names of the gates that run only on request."""


def runs_on_publish(gate: Gate[Any]) -> bool:
    """Whether a gate runs again when a wheel is published; such a gate runs no code of the wheel."""
    return gate.on_publish


def proves(gate: Gate[Any]) -> bool:
    """Whether a gate is slow, so that its reports are cached as proofs, or only reads, so that it runs before those."""
    return gate.on_publish or gate.slow


def verify(
    path: Path,
    cell: Cell | None = None,
    extended: Collection[str] = (),
    runner: GateRunner = HERE,
    selected: Callable[[Gate[Any]], bool] = lambda _: True,
    *,
    may_build: bool = True,
    quick: bool = False,
    archives: Path | None = None,
    context: Context,
) -> tuple[GateResult, ...]:
    """Run the `selected` gates (default: all) on a wheel of this factory; return their results.

    The cell of a flash-attn wheel is `cell`, or the one in its build record; a product has none. Runs the required
    gates and those in `extended`; `quick` skips the slow ones and makes them optional. If the archive or the build
    record is damaged, no further gate runs. For `runner`, `may_build` and `archives` see `Subject`.

    Raises `InputError` if the file name is not a wheel's, the cell is not in the matrix, or the sources of a product
    are not pinned, `SourceError` if the sources to compare with are unavailable, and `BuildError` if the environment of
    a gate cannot be installed.
    """
    name = Wheel.open(path).product  # the file name decides which gates apply
    if cell and name in PRODUCTS:
        raise InputError("this wheel has no cell", path.name, "omit --cell: it is the same for every ROCm and torch")
    opened = check_archive(path)
    if opened.status is Status.FAILED:  # every other gate would fail to open it too
        return (opened,)
    wheel = Wheel.open(path)
    if name in PRODUCTS:
        product = ProductSubject(wheel, context, runner, may_build, project=pin_product(name, context))
        return _run_gates(filter(selected, PRODUCT_GATES[name]), product, extended, opened, quick=quick)
    record = _read_record(wheel)
    if isinstance(record, GateResult):
        return opened, record
    cell = require_in_matrix(expand(context.matrix), cell or Cell.parse(record.cell))
    subject = Subject(wheel, context, runner, may_build, record=record, cell=cell, archives=archives)
    gates = (gate for gate in GATES if cell.backend in gate.backends and selected(gate))
    return _run_gates(gates, subject, extended, opened, quick=quick)


def _read_record(wheel: Wheel) -> BuildRecord | GateResult:
    """Return the build record of a wheel, or the result of the gate `identity` if it has none that can be read."""
    try:
        record = read_build_record(wheel)
    except InputError as error:
        return _unreadable("identity", wheel, error)
    remedy = "run `wheelfactory build` or `wheelfactory repair`: it is not a finished wheel of this factory"
    missing = Finding(wheel.path.name, "a build record", "none", remedy)
    return record or GateResult.from_findings("identity", [missing])


def _run_gates(
    gates: Iterable[Gate[AnySubject]],
    subject: AnySubject,
    extended: Collection[str],
    opened: GateResult,
    *,
    quick: bool,
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
    finding = Finding(wheel.path.name, "an undamaged wheel", str(error), remedy)
    return GateResult.from_findings(gate, [finding])


def required_gates(kind: Backend | str) -> tuple[str, ...]:
    """Return the names of the gates that a wheel must pass before publishing: a cell's of this backend, or a product's.

    None for any other project: matrix.yaml pins the digest of a dependency from PyPI.
    """
    gates: Iterable[Gate[Any]] = PRODUCT_GATES.get(kind, ())
    if isinstance(kind, Backend):
        gates = (gate for gate in GATES if kind in gate.backends)
    names = tuple(gate.name for gate in gates if gate.required)
    return ("archive", *names) if names else ()


def is_refused(results: Sequence[GateResult]) -> bool:
    """Return whether the results forbid publishing: a required gate did not pass, any gate failed, or none ran."""
    # an empty list must never count as passed
    return not results or any(
        result.status is Status.FAILED or (result.required and result.status is not Status.PASSED) for result in results
    )


def ran_code(results: Iterable[GateResult]) -> bool:
    """Return whether a gate ran code of the wheel."""
    gates: Iterable[Gate[Any]] = (*GATES, *chain.from_iterable(PRODUCT_GATES.values()))
    running = {gate.name for gate in gates if gate.runs_code}
    return any(result.gate in running and result.status is not Status.NOT_RUN for result in results)


def parse_extended(text: str) -> Iterator[str]:
    """Parse a comma-separated list of extended gates, or ``all``. Raises `InputError` for an unknown name."""
    for name in EXTENDED_GATES if text == "all" else filter(None, text.split(",")):
        if name not in EXTENDED_GATES:
            raise InputError("unknown extended gate", name, f"choose from all, {', '.join(EXTENDED_GATES)}")
        yield name
