"""Cells and kernel sets become jobs: what is compiled, in which shards, and which wheels travel together."""

from __future__ import annotations

import json
from collections.abc import Sequence

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
)

FACTS = small_matrix()
CELLS = expand(FACTS).cells
SETS = group_kernel_sets(FACTS, CELLS)


def shards_of(count: int) -> dict[str, list[str]]:
    return {kernel_set.id: [f"{index}/{count}" for index in range(1, count + 1)] for kernel_set in SETS}


def planned(kept: Sequence[str] = (), count: int = 2) -> WorkflowJobs:
    return make_jobs(FACTS, CELLS, SETS, kept, shards_of(count))


def test_every_cell_is_planned_and_a_compiled_one_names_the_kernel_set_that_it_links() -> None:
    sets = {cell.id: kernel_set.id for kernel_set in SETS for cell in kernel_set.cells}
    assert len(sets) > 1
    assert [(cell.id, cell.kernel_set) for cell in planned().cells] == [
        (cell.id, sets.get(cell.id, "")) for cell in CELLS
    ]
    assert any(not cell.kernel_set for cell in planned().cells), "a Triton cell links none"


def test_each_shard_of_each_set_is_an_entry_with_a_name_for_what_it_leaves() -> None:
    first = SETS[0].id
    entries = kernel_entries(planned())
    assert len(entries) == 2 * len(SETS)
    assert entries[1] == {"set": first, "shard": "2/2", "artifact": f"kernels-{first}.shard-2-of-2"}
    assert len({entry["artifact"] for entry in entries}) == len(entries)


def test_a_set_that_is_kept_is_not_compiled_again() -> None:
    plan = planned(kept=[SETS[0].id])
    assert {entry["set"] for entry in kernel_entries(plan)} == {kernel_set.id for kernel_set in SETS[1:]}
    assert [item.stored for item in plan.kernel_sets] == [True] + [False] * (len(SETS) - 1)
    assert [item.archive_name for item in plan.kernel_sets] == [
        stored_set_name(FACTS, kernel_set) for kernel_set in SETS
    ]


def test_sets_that_do_not_fit_one_jobs_matrix_are_left_to_the_next_run_whole() -> None:
    plan = planned(count=200)
    assert [len(item.shards) for item in plan.kernel_sets] == [200] + [0] * (len(SETS) - 1)
    assert not any(item.stored for item in plan.kernel_sets)


def test_256_shards_fit_and_257_do_not() -> None:
    assert len(kernel_entries(make_jobs(FACTS, CELLS, SETS[:1], (), shards_of(256)))) == 256
    assert kernel_entries(make_jobs(FACTS, CELLS, SETS[:1], (), shards_of(257))) == []


def many(count: int, backend: str) -> tuple[Cell, ...]:
    one = next(cell for cell in CELLS if cell.backend == backend)
    return (one,) * count


def with_largest_wheel(megabytes: int) -> Matrix:
    return Matrix.model_validate_json(FACTS.model_dump_json(by_alias=True).replace("1000 MB", f"{megabytes} MB"))


def test_wheels_travel_in_groups_that_a_runners_disk_holds_at_their_largest() -> None:
    assert assign_groups(with_largest_wheel(1000), many(13, "ck")) == [0] * 6 + [1] * 6 + [2]
    assert assign_groups(with_largest_wheel(3000), many(3, "ck")) == [0, 0, 1]
    assert assign_groups(with_largest_wheel(7000), many(2, "ck")) == [0, 1], "one too large for a group is one alone"
    assert set(assign_groups(FACTS, many(1000, "triton"))) == {0}


def test_more_groups_than_one_jobs_matrix_takes_are_refused() -> None:
    assert assign_groups(with_largest_wheel(6000), many(256, "ck"))[-1] == 255
    with pytest.raises(InputError, match="257 cells make 257 groups"):
        assign_groups(with_largest_wheel(6000), many(257, "ck"))


def test_the_matrices_of_the_jobs_name_each_cell_and_each_group_once() -> None:
    cells = [CellJob(id=f"cell{number}", group=str(number // 2), kernel_set="") for number in range(3)]
    assert cell_entries(cells)[2] == {"id": "cell2", "group": "1", "kernel-set": ""}
    assert json.loads(group_matrix(cells)) == {
        "include": [{"group": "0", "cells": "cell0 cell1"}, {"group": "1", "cells": "cell2"}]
    }
