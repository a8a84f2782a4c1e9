"""aiter is built before the wheels that require it, published with them, and listed in their indexes only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aiter_factory import PREVIEW, VERSION, WHEEL, aiter_machine, keep_plain_aiter, pin
from release_factory import flash_attn_wheel, passed_gates
from stage_arguments import local_executor
from wheel_factory import TRITON, make_wheel, metadata_text
from wheelfactory.build.products import PinnedProject
from wheelfactory.core.cell import OFFERED_PRODUCTS, Cell
from wheelfactory.core.errors import BuildError, VerificationError
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline import run as running
from wheelfactory.pipeline.build import Failure, prove_batch, verify_batch
from wheelfactory.pipeline.jobs import CellJob, batch_matrix
from wheelfactory.pipeline.run import CellPipeline, Worklist, run_worklist
from wheelfactory.release.additions import read_wheel_row, require_products
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.manifest import read_manifest
from wheelfactory.release.verified import unverified_reason
from wheelfactory.verify.contents import expected_from_aiter
from wheelfactory.verify.gates import PRODUCT_GATES, product_gates, required_gates
from wheelfactory.verify.result import GateResult, Status

NAME = "amd-aiter"
PASSED = tuple(GateResult(gate=name, status=Status.PASSED) for name in required_gates(NAME))


@pytest.fixture
def given(tmp_path: Path) -> Context:
    """A small machine whose matrix pins aiter, with its plain build as a test double."""
    keep_plain_aiter(tmp_path / "cache", pin())
    return aiter_machine(tmp_path / "cache", pin())


def write_aiter(folder: Path) -> Path:
    """The finished wheel of the plain build of `given`."""
    return make_wheel(
        folder,
        name="amd_aiter",
        version=VERSION,
        metadata=metadata_text(VERSION, name=NAME, requires=["einops"]),
        wheel="Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        members={"aiter/__init__.py": b"# kernels\n" * 100_000},
    )


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRODUCT_GATES, NAME, product_gates(expected_from_aiter, range(1, 10**6)))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names whose builds started, in order; only aiter's is written."""
    found: list[str] = []

    def build_cells(_pipeline: CellPipeline, cells: Sequence[Cell]) -> list[Failure]:
        found.extend(cell.id for cell in cells)
        return []

    def build_aiter(project: PinnedProject, folder: Path, _cache: Path) -> Path:
        if project.name != NAME:
            raise BuildError("no CPU torch", "for this Python", "run with another")
        found.append(NAME)
        return write_aiter(folder)

    monkeypatch.setattr(running, "build_in_parallel", build_cells)
    monkeypatch.setattr(running, "build_wheel", build_aiter)
    return found


def run(given: Context, publisher: DirectoryPublisher, *cells: Cell, published: tuple[Cell, ...] = ()) -> None:
    worklist = Worklist(to_build=cells, published=published, unbuildable=())
    run_worklist(local_executor(given), worklist, publisher, context=given)


def test_it_is_published_before_the_cells_that_require_it_and_again_where_its_file_is_lost(
    given: Context, done: list[str], tmp_path: Path
) -> None:
    publisher = DirectoryPublisher(tmp_path / "release")
    run(given, publisher, TRITON, PREVIEW)
    assert done == [NAME, TRITON.id, PREVIEW.id]
    (row,) = publisher.rows()
    assert (row.filename, row.cell, unverified_reason(row)) == (WHEEL, None, "")
    done.clear()
    run(given, publisher, published=(PREVIEW,))
    assert done == []
    (publisher.wheels_dir / WHEEL).unlink()
    run(given, publisher, published=(PREVIEW,))
    assert done == [NAME]


def test_a_workflow_builds_it_in_the_first_batch_with_a_cell_that_requires_it() -> None:
    """So no batch uploads such a cell if nobody could build it: the gates of the cell need it too."""

    def batches(*cells: Cell) -> list[str]:
        text = batch_matrix([CellJob(id=cell.id, batch=f"b{number}") for number, cell in enumerate(cells)])
        return [entry["cells"] for entry in json.loads(text)["include"]]

    other = replace(PREVIEW, torch="2.14.1")
    assert batches(TRITON) == [TRITON.id, *OFFERED_PRODUCTS]
    assert batches(TRITON, PREVIEW, other) == [TRITON.id, f"{PREVIEW.id} {NAME}", other.id, *OFFERED_PRODUCTS]
    assert batches() == []


def test_a_batch_proves_nothing_of_it_and_verifies_it(given: Context, tmp_path: Path) -> None:
    write_aiter(tmp_path / "wheels")
    executor = local_executor(given)
    assert prove_batch(executor, [NAME], tmp_path / "wheels", context=given) == ()
    assert verify_batch(executor, [NAME], tmp_path / "wheels", tmp_path / "rows", context=given) == ()
    (row,) = read_manifest(tmp_path / "rows" / NAME / "manifest.jsonl")
    assert (row.filename, unverified_reason(row)) == (WHEEL, "")


# -- published


def test_a_wheel_that_requires_it_is_not_published_without_it(given: Context, tmp_path: Path) -> None:
    kernels = read_wheel_row(write_aiter(tmp_path / "aiter"), PASSED)
    labelled = {"project": "flash-attn", "label": "rocm72torch2.13tritongit4a948e9", "filename": "flash_attn.whl"}
    preview = kernels.model_copy(update=labelled)
    other = preview.model_copy(update={"label": "rocm72torch2.13git4a948e9"})
    yanked = kernels.model_copy(update={"yanked": "wrong"})
    older = kernels.model_copy(update={"filename": "amd_aiter-0.0.20250101-py3-none-any.whl"})
    for published in ([], [yanked], [older]):
        with pytest.raises(VerificationError, match=rf"amd-aiter is not published: flash_attn\.whl requires {WHEEL}"):
            require_products([preview], published, context=given)
    for added, published in (([preview], [kernels]), ([kernels, preview], []), ([other], [])):
        require_products(added, published, context=given)


def test_a_run_publishes_no_wheel_whose_aiter_could_not_be_published(
    given: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_build(*_arguments: object) -> Path:
        raise BuildError("no network", "aiter", "")

    monkeypatch.setattr(running, "build_wheel", cannot_build)
    monkeypatch.setattr(running, "build_cell", lambda *_arguments, **_options: flash_attn_wheel(tmp_path, PREVIEW.id))
    monkeypatch.setattr(running, "verify", lambda *_arguments, **_options: passed_gates(PREVIEW.id))
    publisher = DirectoryPublisher(tmp_path / "release")
    worklist = Worklist(to_build=(PREVIEW,), published=(), unbuildable=())
    failures = run_worklist(local_executor(given), worklist, publisher, context=given)
    assert [failure.name for failure in failures] == [NAME, PREVIEW.id, *OFFERED_PRODUCTS]
    assert "amd-aiter is not published" in str(failures[1].error)
    assert publisher.rows() == ()
