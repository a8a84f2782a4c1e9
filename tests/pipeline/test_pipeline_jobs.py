"""Jobs of a workflow run: shards to compile, upload groups, the jobs file, and step outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from small_matrix import small_matrix
from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.kernels.kernel_set import group_kernel_sets, stored_set_name
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.pipeline.jobs import (
    CellJob,
    WorkflowJobs,
    assign_groups,
    cell_entries,
    group_matrix,
    kernel_entries,
    make_jobs,
    output_lines,
)

MATRIX = small_matrix()
CELLS = expand(MATRIX).cells
SETS = group_kernel_sets(MATRIX, CELLS)


def jobs_of(stored: Sequence[str] = (), shard_count: int = 2) -> WorkflowJobs:
    shards = {item.id: [f"{index}/{shard_count}" for index in range(1, shard_count + 1)] for item in SETS}
    return make_jobs(MATRIX, CELLS, SETS, stored, shards)


def test_every_cell_has_a_job_that_names_the_kernel_set_it_links() -> None:
    sets = {cell.id: kernel_set.id for kernel_set in SETS for cell in kernel_set.cells}
    assert len(set(sets.values())) > 1
    jobs = jobs_of().cells
    assert [(cell.id, cell.kernel_set) for cell in jobs] == [(cell.id, sets.get(cell.id, "")) for cell in CELLS]
    assert any(not cell.kernel_set for cell in jobs), "a Triton cell links none"


def test_each_shard_of_a_set_that_is_not_stored_is_an_entry_with_its_own_artifact() -> None:
    jobs = jobs_of(stored=[SETS[0].id])
    entries = kernel_entries(jobs)
    assert len(entries) == 2 * (len(SETS) - 1)
    second = SETS[1].id
    assert entries[1] == {"set": second, "shard": "2/2", "artifact": f"kernels-{second}.shard-2-of-2"}
    assert len({entry["artifact"] for entry in entries}) == len(entries)
    assert [item.stored for item in jobs.kernel_sets] == [True] + [False] * (len(SETS) - 1)
    names = [stored_set_name(MATRIX, kernel_set) for kernel_set in SETS]
    assert [item.archive_name for item in jobs.kernel_sets] == names


@pytest.mark.parametrize(
    ("shard_count", "first_set", "others"), [(200, 200, 0), (256, 256, 0), (257, 0, 0), (128, 128, 128)]
)
def test_a_set_whose_shards_exceed_one_matrix_waits_for_the_next_run(
    shard_count: int, first_set: int, others: int
) -> None:
    jobs = jobs_of(shard_count=shard_count)
    assert [len(item.shards) for item in jobs.kernel_sets][:2] == [first_set, others]
    assert len(kernel_entries(jobs)) <= 256
    assert not any(item.stored for item in jobs.kernel_sets)


def repeat_cell(count: int, backend: str) -> tuple[Cell, ...]:
    found = next(cell for cell in CELLS if cell.backend == backend)
    return (found,) * count


def with_largest_wheel(megabytes: int) -> Matrix:
    return Matrix.model_validate_json(MATRIX.model_dump_json(by_alias=True).replace("1000 MB", f"{megabytes} MB"))


def test_groups_fit_a_runners_disk_at_the_largest_size_of_each_wheel() -> None:
    assert assign_groups(with_largest_wheel(1000), repeat_cell(13, "ck")) == [0] * 6 + [1] * 6 + [2]
    assert assign_groups(with_largest_wheel(3000), repeat_cell(3, "ck")) == [0, 0, 1]
    assert assign_groups(with_largest_wheel(7000), repeat_cell(2, "ck")) == [0, 1], (
        "an oversized wheel is a group of its own"
    )
    assert set(assign_groups(MATRIX, repeat_cell(1000, "triton"))) == {0}


def test_more_groups_than_one_matrix_takes_are_refused() -> None:
    assert assign_groups(with_largest_wheel(6000), repeat_cell(256, "ck"))[-1] == 255
    with pytest.raises(InputError, match="257 cells make 257 groups"):
        assign_groups(with_largest_wheel(6000), repeat_cell(257, "ck"))


def test_matrices_have_each_cell_and_each_group_once() -> None:
    cells = [CellJob(id=f"cell{number}", group=str(number // 2), kernel_set="") for number in range(3)]
    assert cell_entries(cells)[2] == {"id": "cell2", "group": "1", "kernel-set": ""}
    assert json.loads(group_matrix(cells)) == {
        "include": [{"group": "0", "cells": "cell0 cell1"}, {"group": "1", "cells": "cell2"}]
    }


def test_the_jobs_file_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    jobs_of().write(path)
    assert WorkflowJobs.read(path) == jobs_of()


def test_a_missing_jobs_file_is_an_error_with_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the jobs file: .*jobs\.json \(No such file") as caught:
        WorkflowJobs.read(tmp_path / "jobs.json")
    assert "wheelfactory ci jobs" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", '{"cells":[{"id":2.10,"group":"0"}],"kernel_sets":[]}', '{"cells":[]}'])
def test_another_file_is_not_a_jobs_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs.json").write_text(text)
    with pytest.raises(InputError, match=r"not a jobs file: .*jobs\.json: "):
        WorkflowJobs.read(tmp_path / "jobs.json")


def test_step_outputs_spell_booleans_as_workflow_expressions_do() -> None:
    assert output_lines({"count": 3, "pending": True, "cells": '{"include":[]}'}) == [
        "count=3",
        "pending=true",
        'cells={"include":[]}',
    ]
