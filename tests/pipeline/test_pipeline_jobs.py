"""Jobs of a workflow run: shards to compile, batches of cells, the jobs file, and step outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from small_matrix import small_matrix
from wheelfactory.core.cell import OFFERED_PRODUCTS
from wheelfactory.core.errors import InputError
from wheelfactory.kernels.kernel_set import group_kernel_sets, sets_of_cell, stored_set_name
from wheelfactory.matrix.expand import expand
from wheelfactory.pipeline.jobs import CellJob, WorkflowJobs, batch_matrix, kernel_entries, make_jobs, proof_entries

MATRIX = small_matrix()
CELLS = expand(MATRIX).cells
SETS = group_kernel_sets(MATRIX, CELLS)


def jobs_of(stored: Sequence[str] = (), shard_count: int = 2) -> WorkflowJobs:
    shards = [f"{index}/{shard_count}" for index in range(1, shard_count + 1)]
    return make_jobs(MATRIX, CELLS, SETS, {item.id: shards for item in SETS if item.id not in stored}, (), {})


def test_every_cell_has_a_job_that_names_the_kernel_sets_it_links() -> None:
    jobs = jobs_of().cells
    assert {cell.id: cell.kernel_sets for cell in jobs} == {cell.id: sets_of_cell(MATRIX, cell) for cell in CELLS}
    assert len(jobs) == len(CELLS)
    assert {len(cell.kernel_sets) for cell in jobs} == {0, 2, 3}, "a Triton cell, a cell of one arch, one of two archs"


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


def test_each_compiled_set_of_device_code_is_executed_with_its_host_code() -> None:
    host = next(item for item in SETS if not item.archs)
    assert [entry["set"] for entry in proof_entries(jobs_of(stored=[SETS[0].id]))] == [
        item.id for item in SETS[1:] if item.archs
    ]
    entries = proof_entries(jobs_of(stored=[host.id]))
    assert [entry["set"] for entry in entries] == [item.id for item in SETS if item.archs]
    for entry in entries:
        rocm = entry["set"].rsplit("-", 1)[0]
        assert entry["artifact"] == f"kernels-{entry['set']}"
        own, other = entry["artifacts"].removeprefix("kernels-{").removesuffix("}{,.shard-*}").split(",")
        assert own == entry["set"]
        assert other.startswith(f"{rocm}-")
        assert entry["stored-host"] == (host.id if other == host.id else "")
    assert {bool(entry["stored-host"]) for entry in entries} == {True, False}


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


def test_a_batch_names_the_kernel_sets_of_its_cells_once_and_each_offered_product_is_another() -> None:
    names = [f"fa2.8.3-rocm7.2-torch2.13.0-cp31{number}-ck" for number in range(4)]
    triton = "fa2.8.3-rocm7.2-torch2.13.0-py3-triton"
    cells = [
        CellJob(id=names[0], batch="ck-1", kernel_sets=("b", "c")),
        CellJob(id=names[1], batch="ck-1", kernel_sets=("a", "c")),
        CellJob(id=names[2], batch="ck-1", kernel_sets=("b", "c")),
        CellJob(id=triton, batch="triton-1"),
        CellJob(id=names[3], batch="ck-1"),
    ]
    assert [tuple(entry.values()) for entry in json.loads(batch_matrix(cells))["include"]] == [
        ("ck-1", " ".join(names), "a b c"),
        ("triton-1", triton, ""),
        *((name, name, "") for name in OFFERED_PRODUCTS),
    ]


def test_the_jobs_file_round_trips_and_a_missing_or_other_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "jobs.json"
    with pytest.raises(InputError, match=r"cannot read the jobs file: .*jobs\.json \(No such file") as caught:
        WorkflowJobs.read(path)
    assert "wheelfactory ci jobs" in caught.value.hint
    jobs_of().write(path)
    assert WorkflowJobs.read(path) == jobs_of()
    path.write_text('{"cells":[]}')
    with pytest.raises(InputError, match=r"not a jobs file: .*jobs\.json: "):
        WorkflowJobs.read(path)
