"""`run` verifies published wheels that are unverified; a wheel that fails keeps its row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from release_factory import passed_gates, quick_gates
from stage_arguments import local_executor
from wheel_factory import TRITON, finished_wheel, small_machine
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import BuildError, VerificationError
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline import run as running
from wheelfactory.pipeline.build import Failure
from wheelfactory.pipeline.run import CellPipeline, Worklist, make_worklist, run_worklist
from wheelfactory.release.additions import read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.transaction import publish, yank
from wheelfactory.verify.result import Finding, GateResult


@pytest.fixture
def given(tmp_path: Path) -> Context:
    return small_machine(tmp_path / "cache")


@pytest.fixture
def publisher(tmp_path: Path) -> DirectoryPublisher:
    """A release with a wheel of ``run --quick``."""
    wheel = finished_wheel(tmp_path / "made", TRITON)
    made = DirectoryPublisher(tmp_path / "release")
    publish(made, [(read_wheel_row(wheel, quick_gates(TRITON.id)), wheel)])
    return made


def worklist_of(publisher: DirectoryPublisher) -> Worklist:
    return Worklist(to_build=(), published=(), unbuildable=(), to_verify=publisher.rows())


def test_a_verified_wheel_gets_a_new_row_and_new_pages(
    given: Context, publisher: DirectoryPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[Path] = []

    def passing(path: Path, *_: object, **__: object) -> tuple[GateResult, ...]:
        verified.append(path)
        return passed_gates(TRITON.id)

    monkeypatch.setattr(running, "verify", passing)
    (before,) = publisher.rows()
    assert run_worklist(local_executor(given), worklist_of(publisher), publisher, context=given) == ()
    assert verified == [publisher.wheels_dir / before.filename]
    assert publisher.rows() == (before.model_copy(update={"gates": passed_gates(TRITON.id)}),)
    assert "not checked" not in (publisher.folder / "packages.md").read_text()


def test_a_yanked_wheel_is_replaced_by_one_with_a_letter(
    given: Context, publisher: DirectoryPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    yank(publisher, publisher.rows()[0].filename, "wrong numbers")
    built: list[str | None] = []

    def build(pipeline: CellPipeline, cells: Sequence[Cell]) -> list[Failure]:
        replacements = pipeline.context.replacements
        built.extend(given.matrix.build_tag(cell, replacements[cell.id]) for cell in cells)
        return []

    monkeypatch.setattr(running, "build_in_parallel", build)
    monkeypatch.setattr(running, "fetch_missing_dependencies", lambda *_, **__: [])
    monkeypatch.setattr(running, "find_missing_products", lambda *_, **__: ())
    executor = local_executor(given)
    run_worklist(executor, make_worklist(executor, [TRITON], publisher, context=given), publisher, context=given)
    assert built == ["0a"]


def failing(*_: object, **__: object) -> tuple[GateResult, ...]:
    finding = Finding(file="a.whl", expected="dq to be off by 0.001 at most", found="0.2", remedy="take it out")
    return (*passed_gates(TRITON.id)[:-1], GateResult.from_findings("emulation", [finding]))


def unable(*_: object, **__: object) -> tuple[GateResult, ...]:
    raise BuildError("pip failed", "no triton", "run with another Python")


@pytest.mark.parametrize(
    ("gates", "kind", "hint"),
    [
        (failing, VerificationError, "the published wheel was not changed; if "),
        (unable, BuildError, "run with another Python"),
    ],
    ids=["wrong numbers", "cannot be checked here"],
)
def test_a_wheel_that_stays_unverified_is_a_failure_and_keeps_its_row(
    given: Context,
    publisher: DirectoryPublisher,
    monkeypatch: pytest.MonkeyPatch,
    gates: object,
    kind: type[Exception],
    hint: str,
) -> None:
    monkeypatch.setattr(running, "verify", gates)
    before: tuple[WheelRow, ...] = publisher.rows()
    (failure,) = run_worklist(local_executor(given), worklist_of(publisher), publisher, context=given)
    assert (failure.name, type(failure.error)) == (TRITON.id, kind)
    assert failure.error.hint.startswith(hint)
    assert publisher.rows() == before
    assert "not checked: numbers" in (publisher.folder / "packages.md").read_text()
