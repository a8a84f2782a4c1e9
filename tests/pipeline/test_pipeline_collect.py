"""After the kernel jobs: complete sets are uploaded, incomplete ones stay pending, failed ones drop their cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from wheelfactory.core.errors import BuildError, FactoryError, RunAgainError
from wheelfactory.pipeline import collect
from wheelfactory.pipeline.collect import (
    MAX_ROUNDS,
    CollectedSet,
    SetState,
    buildable_cells,
    collect_sets,
    fail_after_last_round,
)
from wheelfactory.pipeline.jobs import CellJob, KernelSetJobs, WorkflowJobs
from wheelfactory.pipeline.reconcile import Reconciliation

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

    monkeypatch.setattr(collect, "merge_set", merge)
    monkeypatch.setattr(collect, "upload_set", upload)
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
