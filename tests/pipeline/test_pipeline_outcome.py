"""Shards become stored kernel sets, and only cells with all of theirs are built; a gap at the end is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from release_factory import passed_gates, quick_gates
from report_rows import rows_of, shown, table_rows
from wheelfactory.core.errors import BuildError, FactoryError, RunAgainError
from wheelfactory.pipeline import outcome
from wheelfactory.pipeline.jobs import CellJob, KernelSetJobs, WorkflowJobs
from wheelfactory.pipeline.outcome import (
    MAX_ROUNDS,
    CollectedSet,
    Reconciliation,
    SetState,
    buildable_cells,
    collect_sets,
    fail_after_last_round,
    job_summary,
)
from wheelfactory.verify.result import GateResult

SETS = {
    "stored": KernelSetJobs(id="stored", archive_name="kernels-stored-1", stored=True),
    "complete": KernelSetJobs(id="complete", archive_name="kernels-complete-1", shards=("1/2", "2/2")),
    "partial": KernelSetJobs(id="partial", archive_name="kernels-partial-1", shards=("1/1",)),
    "broken": KernelSetJobs(id="broken", archive_name="kernels-broken-1", shards=("1/1",)),
    "unstarted": KernelSetJobs(id="unstarted", archive_name="kernels-unstarted-1"),
}
MERGED: Mapping[str, Path | FactoryError] = {
    "complete": Path("complete.tar.zst"),
    "partial": RunAgainError("incomplete kernel set", "shard 1/1: 3 of 8 kernels", "go on"),
    "broken": BuildError("incomplete kernel set", "2 of 8 sources have no object", "compile what is missing"),
}


class FakeArchiveHost:
    """Remembers the archives that it receives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uploaded: dict[str, str] = {}

    def names(self) -> Iterable[str]:
        return self.uploaded

    def has(self, name: str) -> bool:
        return name in self.uploaded

    def upload(self, name: str, archive: Path) -> Mapping[str, str]:
        self.uploaded[name] = archive.read_text()
        return {archive.name: "0" * 64}

    def download(self, name: str, folder: Path) -> Path | None:
        raise AssertionError("collecting downloads nothing")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeArchiveHost:
    def merge(folder: Path, set_id: str, kernels: Path) -> Path:
        found = MERGED[set_id]
        if isinstance(found, FactoryError):
            raise found
        (folder / found).write_text("all kernels")
        return folder / found

    def upload(host: FakeArchiveHost, name: str, archive: Path) -> Mapping[str, str]:
        return host.upload(name, archive)

    monkeypatch.setattr(outcome, "merge_set", merge)
    monkeypatch.setattr(outcome, "upload_set", upload)
    return FakeArchiveHost(tmp_path)


def jobs_of(*names: str) -> WorkflowJobs:
    cells = [CellJob(id=f"cell-{name}", batch="one", kernel_sets=(name,)) for name in names]
    cells.append(CellJob(id="cell-triton", batch="one"))
    return WorkflowJobs(cells=tuple(cells), kernel_sets=tuple(SETS[name] for name in names))


def collected(host: FakeArchiveHost, *names: str) -> dict[str, CollectedSet]:
    return {item.set_jobs.id: item for item in collect_sets(jobs_of(*names), host.folder, host)}


def test_only_complete_sets_are_uploaded_and_their_archives_deleted(host: FakeArchiveHost) -> None:
    found = collected(host, *SETS)
    assert {name: item.state.value for name, item in found.items()} == {
        "stored": "stored",
        "complete": "stored",
        "partial": "pending",
        "broken": "failed",
        "unstarted": "pending",
    }
    assert host.uploaded == {"kernels-complete-1": "all kernels"}
    assert {name: dict(item.unattested) for name, item in found.items() if item.unattested} == {
        "complete": {"complete.tar.zst": "0" * 64}
    }
    assert list(host.folder.iterdir()) == [], "the disk is free for the next set"
    assert "3 of 8 kernels" in str(found["partial"].error)
    assert "2 of 8 sources" in str(found["broken"].error)


def test_a_cancelled_shard_leaves_its_cells_to_the_next_run_and_this_one_red(host: FakeArchiveHost) -> None:
    jobs, found = jobs_of("complete", "partial"), collected(host, "complete", "partial").values()
    assert buildable_cells(jobs, found, ()) == (), "no cell is built while a set is pending"
    names = [cell.id for cell in jobs.cells]
    outcome = Reconciliation(names, [], names, (), ["kernels=cancelled"])
    assert (outcome.gaps, outcome.failed, outcome.complete) == ([], ["kernels=cancelled"], False)


def test_a_cell_needs_all_its_sets_and_a_published_one_is_not_built(host: FakeArchiveHost) -> None:
    """Two cells share device code, and the host code of one of them failed."""
    jobs = jobs_of("complete", "stored", "broken")
    found = collect_sets(jobs, host.folder, host)
    cells = buildable_cells(jobs, found, {"cell-stored"})
    assert [cell.id for cell in cells] == ["cell-complete", "cell-triton"]
    first = CellJob(id="first", batch="one", kernel_sets=("complete", "stored"))
    second = CellJob(id="second", batch="one", kernel_sets=("complete", "broken"))
    assert buildable_cells(jobs.model_copy(update={"cells": (first, second)}), found, ()) == (first,)


def test_the_last_round_fails_pending_sets(host: FakeArchiveHost) -> None:
    found = tuple(collected(host, "complete", "partial").values())
    assert fail_after_last_round(found, MAX_ROUNDS - 1) == found
    complete, partial = fail_after_last_round(found, MAX_ROUNDS)
    assert (complete.state, partial.state) == (SetState.STORED, SetState.FAILED)
    assert f"partial after {MAX_ROUNDS} runs" in str(partial.error)
    assert [cell.id for cell in buildable_cells(jobs_of("complete", "partial"), (complete, partial), ())] == [
        "cell-complete",
        "cell-triton",
    ]


A, B, C = (f"fa2.8.3-rocm6.4-torch2.9.1-cp31{minor}-ck" for minor in range(3))
T = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
GPU = GateResult.not_run("gpu", "not asked for")


def test_a_run_with_every_selected_cell_published_is_complete() -> None:
    outcome = Reconciliation([B, A], [A, B], results=["select=success", "kernels=skipped"])
    assert outcome.complete
    assert outcome.published == [A, B]
    assert outcome.lines() == ["selected 2, published 2, missing 0"]
    text = outcome.markdown()
    assert text.startswith("**No selected cell is missing.**\n")
    assert "Re-run" not in text
    assert Reconciliation([], []).complete


def test_gaps_name_the_cells_and_the_next_steps() -> None:
    outcome = Reconciliation([C, A, B], [A, "another"])
    assert (outcome.gaps, outcome.complete) == ([B, C], False)
    assert outcome.lines() == [
        "selected 3, published 1, missing 2",
        f"missing  {B}: not published",
        f"missing  {C}: not published",
        "published by earlier runs: 1 cell",
    ]
    verdict, _, *rest = outcome.markdown().splitlines()
    assert verdict == "**Missing: 2 selected cells.**"
    assert rest[0].startswith("1. ")
    assert "Re-run failed jobs" in outcome.markdown()


def test_a_selected_cell_may_wait_for_kernels() -> None:
    outcome = Reconciliation([A, B], [A], waiting=[B, C])
    assert (outcome.complete, outcome.pending, outcome.gaps) == (True, [B], [])
    assert outcome.lines() == ["selected 2, published 1, missing 0, pending 1 (kernels not compiled yet)"]


@pytest.mark.parametrize("result", ["failure", "cancelled", "timed_out", ""])
def test_a_job_that_did_not_succeed_fails_the_run_even_if_no_cell_is_missing(result: str) -> None:
    outcome = Reconciliation([A], [A], results=["select=success", f"release={result}"])
    assert not outcome.complete
    assert f"job  release={result}" in outcome.lines()
    assert f"release={result}" in shown(outcome.markdown())


def test_missing_cells_come_first_after_the_next_steps(tmp_path: Path) -> None:
    text = job_summary(Reconciliation([A, B], [A]), rows_of(tmp_path, [A]))
    assert text.startswith("**Missing: 1 selected cell.**\n\n1. ")
    assert [row[:2] for row in table_rows(text)[1:]] == [[B, "missing"], [A, "published"]]


def test_a_known_wheel_is_listed_with_size_and_gates_or_missing_checks(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, [A], gates=(*passed_gates(A), GPU))
    unverified = rows_of(tmp_path, [T], gates=(*quick_gates(T), GPU))
    text = job_summary(Reconciliation([A, B, C, T], [A, B, T], [C]), (*rows, *unverified))
    found = {cells[0]: cells[1:] for cells in table_rows(text)[1:]}
    assert found[A] == ["published", "1.2 MB", "8 passed; not run: gpu"]
    assert found[B] == ["published", "", ""]
    assert found[C][0] == "pending: kernels not compiled yet"
    assert found[T][2] == "not checked: numbers; 5 passed; not run: emulation, gpu"


def test_a_run_without_cells_has_no_table() -> None:
    text = job_summary(Reconciliation([], []), ())
    assert "Nothing to build" in text
    assert table_rows(text) == []


def test_a_summary_over_the_limit_is_cut_but_keeps_missing_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wheelfactory.pipeline.outcome.SUMMARY_LIMIT", 10_000)
    cells = [f"fa2.8.3-rocm6.4-torch2.9.1-cp3{number}-ck" for number in range(100, 400)]
    missing = max(cells)
    published = [cell for cell in cells if cell != missing]
    text = job_summary(Reconciliation(cells, published), ())
    assert len(text.encode()) <= 10_000
    assert "more are not shown" in text
    assert table_rows(text)[1][:2] == [missing, "missing"]
