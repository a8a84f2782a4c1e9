"""After the kernel jobs: finished sets are kept, unfinished ones wait, failed ones take their cells with them."""

from __future__ import annotations

from collections.abc import Mapping
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
from wheelfactory.pipeline.jobs import CellJob, SetJobs, WorkflowJobs

SETS = {
    "kept": SetJobs(id="kept", archive_name="kernels-kept-1", stored=True),
    "whole": SetJobs(id="whole", archive_name="kernels-whole-1", shards=("1/2", "2/2")),
    "part": SetJobs(id="part", archive_name="kernels-part-1", shards=("1/1",)),
    "broken": SetJobs(id="broken", archive_name="kernels-broken-1", shards=("1/1",)),
    "waiting": SetJobs(id="waiting", archive_name="kernels-waiting-1"),
}
JOINED: Mapping[str, Path | FactoryError] = {
    "whole": Path("whole.tar.zst"),
    "part": RunAgainError("incomplete kernel set", "shard 1/1: 3 of 8 kernels", "go on"),
    "broken": BuildError("incomplete kernel set", "2 of 8 sources have no object", "compile what is missing"),
}


class Shelf:
    """Remembers what it is given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.given: dict[str, str] = {}

    def has(self, name: str) -> bool:
        return name in self.given

    def upload(self, name: str, archive: Path) -> None:
        self.given[name] = archive.read_text()

    def download(self, name: str, folder: Path) -> Path | None:
        raise AssertionError("nothing is taken")


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shelf:
    def join(folder: Path, set_id: str, kernels: Path) -> Path:
        found = JOINED[set_id]
        if isinstance(found, FactoryError):
            raise found
        (folder / found).write_text("all kernels")
        return folder / found

    monkeypatch.setattr(collect, "merge_set", join)
    return Shelf(tmp_path)


def plan_of(*names: str) -> WorkflowJobs:
    cells = [CellJob(id=f"cell-{name}", group="0", kernel_set=name) for name in names]
    cells.append(CellJob(id="cell-triton", group="0"))
    return WorkflowJobs(cells=tuple(cells), kernel_sets=tuple(SETS[name] for name in names))


def gathered(shelf: Shelf, *names: str) -> dict[str, CollectedSet]:
    found = collect_sets(plan_of(*names), shelf.folder, shelf)
    return {item.set_jobs.id: item for item in found}


def test_a_whole_set_is_put_on_the_shelf_under_its_name_and_leaves_the_disk_free_for_the_next(shelf: Shelf) -> None:
    assert gathered(shelf, "whole")["whole"].state is SetState.STORED
    assert shelf.given == {"kernels-whole-1": "all kernels"}
    assert list(shelf.folder.iterdir()) == []


def test_each_other_set_is_told_for_what_it_is_and_not_kept(shelf: Shelf) -> None:
    found = gathered(shelf, "kept", "part", "broken", "waiting")
    states = {name: item.state.value for name, item in found.items()}
    assert states == {"kept": "kept", "part": "later", "broken": "failed", "waiting": "later"}
    assert not shelf.given
    assert "3 of 8 kernels" in str(found["part"].error)
    assert "2 of 8 sources" in str(found["broken"].error)


def test_cells_wait_for_all_kernels_because_a_release_is_published_once(shelf: Shelf) -> None:
    assert buildable_cells(plan_of("whole", "part"), gathered(shelf, "whole", "part").values(), ()) == ()


def test_a_failed_set_takes_its_own_cells_and_no_others(shelf: Shelf) -> None:
    cells = buildable_cells(plan_of("whole", "broken"), gathered(shelf, "whole", "broken").values(), ())
    assert [cell.id for cell in cells] == ["cell-whole", "cell-triton"]


def test_a_cell_that_was_published_since_the_plan_is_not_built_again(shelf: Shelf) -> None:
    cells = buildable_cells(plan_of("whole"), gathered(shelf, "whole").values(), {"cell-whole"})
    assert [cell.id for cell in cells] == ["cell-triton"]


def test_in_the_last_round_what_is_not_done_has_failed_and_says_so(shelf: Shelf) -> None:
    found = tuple(gathered(shelf, "whole", "part").values())
    assert fail_after_last_round(found, MAX_ROUNDS - 1) == found
    whole, part = fail_after_last_round(found, MAX_ROUNDS)
    assert (whole.state, part.state) == (SetState.STORED, SetState.FAILED)
    assert f"part in {MAX_ROUNDS} runs" in str(part.error)
    assert [cell.id for cell in buildable_cells(plan_of("whole", "part"), (whole, part), ())] == [
        "cell-whole",
        "cell-triton",
    ]
