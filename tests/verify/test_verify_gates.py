"""All required gates together: which results refuse a wheel, and which gates then do not run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from wheel_factory import (
    CK,
    TRITON,
    build_record,
    extension_name,
    finished_wheel,
    make_wheel,
    small_machine,
    tamper,
)
from wheelfactory.build.executor import GateRunner
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError, InputError
from wheelfactory.verify import gates
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.gates import GATES, is_refused, verify
from wheelfactory.verify.result import GateResult, Status, show_difference

REQUIRED = [gate.name for gate in GATES if gate.required]
SLOW = ("emulation",)

PASSED, FAILED, NOT_RUN = Status.PASSED, Status.FAILED, Status.NOT_RUN


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The wheels that were imported; what needs a torch is replaced by what passes all."""
    asked: list[str] = []

    def importing(subject: Subject) -> GateResult:
        asked.append(subject.wheel.path.name)
        return GateResult(gate="import", status=PASSED)

    def passing(name: str) -> Callable[[Subject], GateResult]:
        return lambda subject: GateResult(gate=name, status=PASSED)

    stand_ins = {"import": importing} | {name: passing(name) for name in ("symbols", *SLOW)}
    monkeypatch.setattr(gates, "GATES", [replace(gate, check=stand_ins.get(gate.name, gate.check)) for gate in GATES])
    return asked


def passing(cell: Cell) -> dict[str, Status]:
    """The results of a good wheel: every required gate of its backend passes, the others do not run."""
    mine = [gate for gate in GATES if cell.backend in gate.backends]
    return {"archive": PASSED} | {gate.name: PASSED if gate.required else NOT_RUN for gate in mine}


def statuses(results: tuple[GateResult, ...]) -> dict[str, Status]:
    return {result.gate: result.status for result in results}


@pytest.mark.parametrize("cell", [CK, TRITON], ids=lambda cell: cell.id)
def test_a_true_wheel_passes_every_gate(tmp_path: Path, imported: list[str], cell: Cell) -> None:
    path = finished_wheel(tmp_path, cell)

    results = verify(path, cell, context=small_machine(tmp_path))

    assert statuses(results) == passing(cell)
    assert not is_refused(results)
    assert imported == [path.name]


def test_only_the_gates_concerned_fail_and_nothing_is_imported(tmp_path: Path, imported: list[str]) -> None:
    path = finished_wheel(tmp_path, record=build_record(CK, label="rocm64torch2.8"))
    results = verify(path, CK, context=small_machine(tmp_path))

    assert statuses(results) == passing(CK) | {"import": NOT_RUN, "identity": FAILED}
    (detail,) = (result.detail for result in results if result.gate == "import")
    assert detail == "an earlier gate refused the wheel"
    assert is_refused(results)
    assert imported == []


@pytest.mark.parametrize(("cell", "asked"), [(CK, True), (TRITON, False)], ids=["CK", "Triton"])
def test_only_gates_that_need_the_build_host_request_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: Cell, asked: bool
) -> None:
    """To make one may take an image of tens of gigabytes."""
    places: list[Cell] = []
    if cell is TRITON:  # these create an environment with torch, which this test does not need
        kept = [gate for gate in GATES if not gate.runs_code]
        monkeypatch.setattr(gates, "GATES", kept)

    class Elsewhere(GateRunner):
        def find_gate_host(self, wanted: Cell) -> None:
            places.append(wanted)

    verify(finished_wheel(tmp_path, cell), cell, (), Elsewhere(), context=small_machine(tmp_path))
    assert (cell in places) == asked


@pytest.mark.parametrize("cell", [CK, TRITON], ids=lambda cell: cell.id)
def test_quick_skips_exactly_the_slow_gates(tmp_path: Path, imported: list[str], cell: Cell) -> None:
    results = verify(finished_wheel(tmp_path, cell), cell, quick=True, context=small_machine(tmp_path))

    assert statuses(results) == passing(cell) | (dict.fromkeys(SLOW, NOT_RUN) if cell is TRITON else {})
    left_out = {result.gate: (result.required, result.detail) for result in results if result.gate in SLOW}
    assert left_out == (dict.fromkeys(SLOW, (False, "skipped by --quick")) if cell is TRITON else {})
    assert not is_refused(results)


def test_a_slow_gate_that_cannot_run_here_names_another_python_and_quick(
    tmp_path: Path, imported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(subject: Subject) -> GateResult:
        raise BuildError("pip failed", "no triton 3.7.1", "Triton 3.7.1 must be installable for Python 3.20")

    made = [replace(gate, check=missing) if gate.name == "emulation" else gate for gate in gates.GATES]
    monkeypatch.setattr(gates, "GATES", made)

    with pytest.raises(BuildError, match="pip failed: no triton") as error:
        verify(finished_wheel(tmp_path, TRITON), context=small_machine(tmp_path))

    assert error.value.hint == (
        "Triton 3.7.1 must be installable for Python 3.20; use another Python, "
        "or skip the gate emulation with `run --quick`"
    )


def test_the_cell_is_the_one_of_the_build_record_unless_given(tmp_path: Path, imported: list[str]) -> None:
    path = finished_wheel(tmp_path, CK)

    assert not is_refused(verify(path, context=small_machine(tmp_path)))
    assert statuses(verify(path, TRITON, context=small_machine(tmp_path)))["identity"] is FAILED


def results(**changes: Status) -> list[GateResult]:
    statuses = dict.fromkeys(REQUIRED, PASSED) | changes
    return [GateResult(gate=gate, status=status) for gate, status in statuses.items()]


def test_a_required_gate_that_did_not_pass_refuses_the_wheel() -> None:
    assert not is_refused(results())
    assert is_refused([])
    for gate, status in product(REQUIRED, (FAILED, NOT_RUN)):
        assert is_refused(results(**{gate: status})), gate
    further = GateResult(gate="numbers on a GPU", status=NOT_RUN, required=False)
    assert not is_refused([*results(), further])
    assert is_refused([*results(), further.model_copy(update={"status": FAILED})])


MEMBER = "flash_attn-2.8.3+rocm64torch2.9.dist-info/wheelfactory.json"


def without_record(folder: Path) -> Path:
    return tamper(finished_wheel(folder), {MEMBER: None})


@pytest.mark.parametrize("make", [make_wheel, without_record], ids=["another build", "removed"])
def test_a_wheel_without_a_build_record_and_a_damaged_one_are_refused_before_any_other_gate(
    tmp_path: Path, imported: list[str], make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path)

    results = verify(path, CK, context=small_machine(tmp_path))

    assert statuses(results) == {"archive": PASSED, "identity": FAILED}
    (finding,) = results[-1].findings
    assert (finding.file, finding.expected, finding.found) == (path.name, "a build record", "none")
    assert "`wheelfactory repair`" in finding.remedy
    path.write_bytes(path.read_bytes()[:-30])
    assert statuses(verify(path, CK, context=small_machine(tmp_path))) == {"archive": FAILED}
    assert imported == []


@pytest.mark.parametrize(
    ("member", "content", "gate", "found"),
    [
        (MEMBER, b"{", "identity", "damaged build record"),
        (extension_name(CK), b"\x7fELF\x02\x01", "contents", "damaged ELF file"),
    ],
)
def test_unreadable_data_is_a_finding_of_the_gate_that_reads_it(
    tmp_path: Path, imported: list[str], member: str, content: bytes, gate: str, found: str
) -> None:
    results = verify(tamper(finished_wheel(tmp_path), {member: content}), CK, context=small_machine(tmp_path))

    failed = next(result for result in results if result.gate == gate)
    assert failed.status is FAILED
    assert found in failed.findings[0].found
    assert imported == []


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        ("fa9.9.9-rocm6.4-torch2.9.1-cp311-ck", "no flash-attn 9.9.9 in the matrix"),
        ("something else", "not a cell id"),
    ],
)
def test_a_cell_that_the_matrix_does_not_have_is_an_input_error(tmp_path: Path, cell: str, what: str) -> None:
    path = finished_wheel(tmp_path, record=build_record(CK, cell=cell))

    with pytest.raises(InputError, match=what):
        verify(path, context=small_machine(tmp_path))


MANY = [f"gfx{number}" for number in range(900, 925)]


@pytest.mark.parametrize(
    ("expected", "found", "shown"),
    [
        (["a", "b"], [], ("a, b", "nothing")),
        (MANY, [*MANY[1:], "gfx1"], ("25 entries", "missing: gfx900; unexpected: gfx1")),
        (MANY, MANY[:-1], ("25 entries", "missing: gfx924")),
        (MANY, MANY[::-1], ("25 entries", "another order")),
    ],
)
def test_of_long_lists_a_finding_shows_the_difference(
    expected: list[str], found: list[str], shown: tuple[str, str]
) -> None:
    assert show_difference(expected, found) == shown
