"""The jobs of a batch: a cell that fails stops no other, and what is there is not made again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from release_factory import passed_gates
from stage_arguments import local_executor
from wheel_factory import CK, TRITON, finished_wheel, make_wheel, payload, small_machine
from wheelfactory.build.executor import Executor
from wheelfactory.build.sources import Source
from wheelfactory.core.cell import FALLBACK_NAME, Cell
from wheelfactory.core.errors import BuildError, RunAgainError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import ignore_progress
from wheelfactory.kernels.setup_env import FULL_SCOPE, CompileScope
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline import build
from wheelfactory.pipeline.build import Failure, build_batch, build_cell, find_wheels, prove_batch, verify_batch
from wheelfactory.release.manifest import read_manifest
from wheelfactory.verify.gates import GATES
from wheelfactory.verify.result import GateResult, Status
from wheelfactory.verify.symbols import symbols_path
from wheelfactory.wheel.read import Wheel, read_build_record

OTHER = Cell.parse("fa2.8.3-rocm6.4-torch2.9.1-cp312-ck")
SAME_ENVIRONMENT = Cell.parse("fa2.6.3-rocm6.4-torch2.9.1-cp311-ck")


@dataclass
class Machine:
    """An executor that remembers whose environment was removed; builds and gates are stand-ins."""

    context: Context
    wheels: Path
    discarded: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)
    failing: frozenset[str] = frozenset()

    def discard_host(self, cell: Cell) -> None:
        self.discarded.append(cell.id)

    def find_gate_host(self, cell: Cell) -> None:
        return None

    def build_cell(self, executor: object, cell: Cell, folder: Path, *_: object, **__: object) -> Path:
        if cell.id in self.failing:
            raise BuildError("build failed", cell.id, "read the log")
        self.built.append(cell.id)
        return finished_wheel(folder, cell)

    def verify_wheel(self, path: Path, cell: Cell | None, *_: object, **given: Any) -> tuple[GateResult, ...]:
        assert cell
        if cell.id in self.failing:
            raise BuildError("cannot install torch", cell.id, "try again")
        self.verified.append(cell.id)
        return passed_gates(cell.id)

    def build(self, *cells: Cell, scope: CompileScope = FULL_SCOPE) -> tuple[Failure, ...]:
        names = [cell.id for cell in cells]
        return build_batch(cast(Executor, self), names, self.wheels, scope, context=self.context)

    def verify(self, *cells: Cell, scope: CompileScope = FULL_SCOPE, rebuild_all: bool = False) -> tuple[Failure, ...]:
        names, rows = [cell.id for cell in cells], self.wheels / "rows"
        return verify_batch(
            cast(Executor, self), names, self.wheels, rows, scope, rebuild_all=rebuild_all, context=self.context
        )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    made = Machine(small_machine(tmp_path / "cache"), tmp_path / "wheels")
    monkeypatch.setattr(build, "build_cell", made.build_cell)
    monkeypatch.setattr(build, "verify", made.verify_wheel)
    return made


def test_a_cell_that_fails_stops_no_other_and_a_repeated_build_makes_only_what_is_missing(machine: Machine) -> None:
    machine.failing = frozenset({CK.id})
    failures = machine.build(CK, OTHER, TRITON)
    assert [(failure.name, failure.error.what) for failure in failures] == [(CK.id, "build failed")]
    assert sorted(find_wheels(machine.wheels)) == sorted([OTHER.id, TRITON.id])
    machine.failing = frozenset()
    machine.built.clear()
    assert machine.build(CK, OTHER, TRITON) == ()
    assert machine.built == [CK.id]


def test_after_the_deadline_no_cell_is_begun_and_a_repeated_build_continues(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((10.0, 20.0))
    monkeypatch.setattr("wheelfactory.pipeline.build.time", SimpleNamespace(time=lambda: next(clock)))
    (failure,) = machine.build(CK, OTHER, TRITON, scope=CompileScope(deadline=15))
    assert isinstance(failure.error, RunAgainError)
    assert failure.error.which == f"{OTHER.id} and 1 after it"
    assert list(find_wheels(machine.wheels)) == [CK.id]
    assert machine.build(CK, OTHER, TRITON) == ()
    assert machine.built == [CK.id, OTHER.id, TRITON.id]


def test_an_environment_is_removed_after_its_last_cell(machine: Machine) -> None:
    machine.failing = frozenset({OTHER.id})
    machine.build(CK, SAME_ENVIRONMENT, OTHER, TRITON, CK)
    # also after a failure; Triton cells share one environment, which stays
    assert machine.discarded == [SAME_ENVIRONMENT.id, OTHER.id, CK.id]


def test_a_replacement_gets_its_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, source = make_wheel(tmp_path), Source(tmp_path / "sources", "sha256:" + "a" * 64, 0)
    monkeypatch.setattr("wheelfactory.pipeline.build.fetch_source", lambda *_: source)
    monkeypatch.setattr("wheelfactory.pipeline.build.cached_wheel", lambda *_: raw)
    given = replace(small_machine(tmp_path / "cache"), replacements={TRITON.id: 2})
    path = build_cell(local_executor(given), TRITON, tmp_path / "built", ignore_progress, context=given)
    record = read_build_record(Wheel.open(path))
    assert (path.name.split("-")[2], record and record.build) == ("0b", "0b")


def test_time_that_is_up_for_one_cell_is_up_for_the_others(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_time(executor: object, cell: Cell, *_: object, **__: object) -> None:
        raise RunAgainError("time limit reached", cell.id, "run it again")

    monkeypatch.setattr(build, "build_cell", out_of_time)
    assert [failure.name for failure in machine.build(CK, OTHER)] == [CK.id]


def test_each_verified_wheel_has_a_manifest_of_its_own_and_is_verified_though_it_has_one(machine: Machine) -> None:
    """Rows of an earlier attempt would be an artifact, which any job can replace."""
    paths = {cell.id: finished_wheel(machine.wheels, cell) for cell in (CK, OTHER)}
    machine.failing = frozenset({OTHER.id})
    for _ in range(2):
        failures = machine.verify(CK, OTHER, TRITON)
        assert [failure.name for failure in failures] == [OTHER.id], "TRITON was not built, as its build job reports"
    assert machine.verified == [CK.id, CK.id]
    rows = machine.wheels / "rows"
    assert [path.name for path in rows.iterdir()] == [CK.id]
    (row,) = read_manifest(rows / CK.id)
    assert (row.cell, row.filename) == (CK.id, paths[CK.id].name)
    assert not list(rows.rglob("*.whl")), "the wheel is an artifact already"


def test_each_wheel_of_a_batch_is_compared_with_the_torches_of_all_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate of each cell keeps the symbols of its torch; here it only does that."""
    exports = {"2.9.1": ("_ZN3c104warnEv",), "2.13.0": ("_ZN3c104warnEv", "_ZN3c103newEv")}
    cells = [replace(CK, torch=torch) for torch in exports]
    for cell, needed in zip(cells, exports.values(), strict=True):
        finished_wheel(machine.wheels, cell, members=payload(cell, undefined=needed))

    def verify(_path: Path, cell: Cell, *_: object, **__: object) -> tuple[GateResult, ...]:
        write_atomic(symbols_path(machine.context.cache, cell), "\n".join(exports[cell.torch]).encode())
        return passed_gates(cell.id)

    monkeypatch.setattr(build, "verify", verify)
    assert not machine.verify(*cells)
    found = [read_manifest(machine.wheels / "rows" / cell.id)[0].other_torches for cell in cells]
    assert found == [("2.13",), ()]


@pytest.mark.parametrize(("rebuild_all", "count"), [(False, 1), (True, 2)])
def test_with_archives_one_compiled_wheel_or_each_is_built_again_and_compared(
    rebuild_all: bool, count: int, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, again = (CK, OTHER, TRITON), list[str]()
    for cell in cells:
        finished_wheel(machine.wheels, cell)

    def rebuild(path: Path, cell: Cell, *_: object, **__: object) -> GateResult:
        assert len(machine.verified) < len(cells), "before code of the wheel runs"
        again.append(cell.id)
        return GateResult(gate="rebuild", status=Status.FAILED)

    monkeypatch.setattr(build, "check_rebuild", rebuild)
    failures = machine.verify(*cells, scope=CompileScope(archives=tmp_path), rebuild_all=rebuild_all)
    assert (len(again), TRITON.id in again) == (count, False)
    assert [failure.name for failure in failures] == again, "its row is not written"


def test_the_slow_gates_run_after_those_that_only_read(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    gates: list[str] = []

    def recorded(path: Path, cell: Cell, **more: Any) -> tuple[GateResult, ...]:
        gates.extend(gate.name for gate in GATES if more["selected"](gate))
        return passed_gates(cell.id)

    monkeypatch.setattr(build, "verify", recorded)
    finished_wheel(machine.wheels, TRITON)
    assert prove_batch(cast(Executor, machine), [TRITON.id, CK.id], machine.wheels, context=machine.context) == ()
    assert gates[:3] == ["identity", "record", "contents"]
    assert gates[-1] == "emulation"
    assert "import" not in gates


def test_other_files_are_no_wheels_of_a_cell(tmp_path: Path) -> None:
    finished_wheel(tmp_path, CK)
    (tmp_path / "flash_attn-1.0-py3-none-any.whl").write_bytes(b"damaged")
    finished_wheel(tmp_path, name="flash_attention_amd", version="0.1")
    assert sorted(find_wheels(tmp_path)) == [CK.id, FALLBACK_NAME]
