"""Additions to a release: only verified wheels, and the dependencies that complete its indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from release_factory import passed_gates, quick_gates
from stage_arguments import local_executor
from wheel_factory import CK, TRITON, finished_wheel, make_wheel, payload, small_machine
from wheelfactory.core.errors import InputError, PublishError, VerificationError
from wheelfactory.core.files import file_sha256
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.origins import Dependency
from wheelfactory.pipeline.run import make_worklist
from wheelfactory.release import additions
from wheelfactory.release.additions import (
    as_addition,
    fetch_missing_dependencies,
    read_additions,
    read_wheel_row,
    row_differences,
)
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.transaction import publish
from wheelfactory.verify.result import Finding, GateResult, Status

PASSED = passed_gates(TRITON.id)


@pytest.fixture
def given(tmp_path: Path) -> Context:
    """A small machine; its matrix has the dependency einops, which is already downloaded."""
    small = small_machine(tmp_path / "cache")
    made = make_wheel(tmp_path / "made", name="einops", version="0.8.2")
    digest = file_sha256(made)
    kept = small.cache / "sources" / digest[:16] / made.name
    kept.parent.mkdir(parents=True)
    made.rename(kept)
    facts = {"version": "0.8.2", "wheel": kept.name, "sha256": digest, "source": "written for the tests"}
    matrix = small.matrix.model_copy(update={"dependencies": {"einops": Dependency.model_validate(facts)}})
    return replace(small, matrix=matrix)


def missing(given: Context, publisher: DirectoryPublisher) -> Iterator[tuple[WheelRow, Path]]:
    """The dependencies that the release lacks."""
    return fetch_missing_dependencies(publisher, context=given)


@pytest.fixture
def publisher(tmp_path: Path) -> DirectoryPublisher:
    return DirectoryPublisher(tmp_path / "release")


@pytest.fixture
def released(given: Context, publisher: DirectoryPublisher, tmp_path: Path) -> Path:
    """The file of a published Triton wheel, with its dependency in the same folder."""
    wheel = finished_wheel(tmp_path / "finished", TRITON)
    publish(publisher, [*missing(given, publisher), as_addition(wheel, PASSED)])
    return publisher.wheels_dir / wheel.name


def test_a_dependency_is_added_again_only_if_its_file_is_gone(
    given: Context, publisher: DirectoryPublisher, released: Path
) -> None:
    assert list(missing(given, publisher)) == []
    released.with_name("einops-0.8.2-py3-none-any.whl").unlink()
    publish(publisher, missing(given, publisher))
    assert released.with_name("einops-0.8.2-py3-none-any.whl").is_file()


NOT_RUN = GateResult(gate="import", status=Status.NOT_RUN, detail="no torch")
REFUSED = GateResult.from_findings("identity", [Finding(file="WHEEL", expected="a", found="b", remedy="c")])


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ((), ""),
        ((*PASSED, NOT_RUN), "import: not run (no torch)"),
        ((REFUSED, *PASSED[1:]), "identity: WHEEL: expected a, found b (c)"),
    ],
)
def test_a_wheel_that_did_not_pass_every_gate_is_no_addition(
    results: tuple[GateResult, ...], line: str, tmp_path: Path
) -> None:
    with pytest.raises(VerificationError) as refused:
        as_addition(finished_wheel(tmp_path, TRITON), results)
    assert line in refused.value.which


def make_quick(publisher: DirectoryPublisher, **changes: object) -> WheelRow:
    """Change the row of the released wheel to a row of ``run --quick``."""
    changed = {"gates": quick_gates(TRITON.id), **changes}
    rows = [row.model_copy(update=changed) if row.cell else row for row in publisher.rows()]
    publisher.commit(rows)
    return next(row for row in rows if row.cell)


@pytest.mark.parametrize(
    ("change", "quick", "done"),
    [
        ("none", False, "published"),
        ("quick", False, "to_verify"),  # a full run verifies a wheel of a quick run
        ("quick", True, "published"),
        ("yanked", False, "to_build"),  # and not verified any more
        ("lost", False, "to_build"),
    ],
)
def test_what_is_done_for_a_published_cell(
    given: Context, publisher: DirectoryPublisher, released: Path, change: str, quick: bool, done: str
) -> None:
    if change in ("quick", "yanked"):
        make_quick(publisher, **({"yanked": "broken"} if change == "yanked" else {}))
    elif change == "lost":
        released.unlink()
    row = next(row for row in publisher.rows() if row.cell)
    job = make_worklist(local_executor(given), [TRITON], publisher, quick=quick, context=given)
    found = {"to_build": job.to_build, "published": job.published, "to_verify": job.to_verify}
    assert found == {**dict.fromkeys(found, ()), done: ((row,) if done == "to_verify" else (TRITON,))}


@pytest.mark.usefixtures("released")
def test_an_unverified_wheel_is_refused_with_the_remedy(given: Context, publisher: DirectoryPublisher) -> None:
    make_quick(publisher)
    with pytest.raises(VerificationError, match="not checked: numbers") as refused:
        read_additions(publisher.folder, context=given)
    assert "`wheelfactory run` without --quick" in refused.value.hint


@pytest.mark.usefixtures("released")
def test_a_yank_of_another_release_is_refused_with_the_option_that_adds_it(
    given: Context, publisher: DirectoryPublisher
) -> None:
    publisher.commit([row.model_copy(update={"yanked": "broken"}) for row in publisher.rows()])
    with pytest.raises(VerificationError, match="differ in yanked") as refused:
        read_additions(publisher.folder, context=given)
    assert "`--yank NAME`" in refused.value.hint


def test_a_folder_with_a_foreign_index_is_not_a_release(publisher: DirectoryPublisher) -> None:
    (publisher.folder / "simple").mkdir(parents=True)
    with pytest.raises(PublishError, match="not a release of this factory"):
        publisher.rows()


def test_a_row_lists_what_compiled_code_needs_of_torch(tmp_path: Path) -> None:
    needed = ("_ZN3c104warnEv", "_ZN2at5emptyEi", "hipMalloc", "Py_Initialize")
    wheel = finished_wheel(tmp_path / "ck", CK, members=payload(CK, undefined=needed, weak=("_ZN3c105maybeEv",)))
    row = read_wheel_row(wheel)
    assert row.torch_symbols == ("_ZN2at5emptyEi", "_ZN3c104warnEv")
    assert row.requires_python == ">=3.9"
    assert row_differences(row.model_copy(update={"other_torches": ("2.8",)}), wheel) == ()
    assert read_wheel_row(finished_wheel(tmp_path / "triton", TRITON)).torch_symbols == ()


def test_a_wrong_clock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class _In1999(datetime):
        @classmethod
        def now(cls, _: object = None) -> datetime:  # type: ignore[override]
            return datetime(1999, 1, 1, tzinfo=timezone.utc)

    monkeypatch.setattr(additions, "datetime", _In1999)
    with pytest.raises(InputError, match="the clock of this machine is wrong: 1999-01-01"):
        read_wheel_row(make_wheel(tmp_path))
