"""Batches: cells of one image in one job, within the time of a job and the disk of the upload."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any, cast

import pytest

from small_matrix import small_matrix
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import (
    BUILD_FAILED,
    DONE,
    RUN_AGAIN,
    BuildError,
    FactoryError,
    InputError,
    RunAgainError,
    VerificationError,
)
from wheelfactory.core.files import MATRIX
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.batches import MAX_BATCH_BYTES, MAX_BATCH_MINUTES, cut_batches, predict_run, split_into_waves
from wheelfactory.pipeline.build import Failure
from wheelfactory.pipeline.run import build_in_parallel, build_in_waves, exit_code

SMALL = small_matrix()
DEFAULT = load_matrix(MATRIX)
CELLS = expand(DEFAULT).cells
BATCHES = cut_batches(DEFAULT, CELLS)


def with_largest_wheel(megabytes: int) -> Matrix:
    return Matrix.model_validate_json(SMALL.model_dump_json(by_alias=True).replace("1000 MB", f"{megabytes} MB"))


def repeat_cell(count: int, backend: str) -> tuple[Cell, ...]:
    found = next(cell for cell in expand(SMALL).cells if cell.backend == backend)
    return (found,) * count


def test_every_cell_of_the_default_matrix_is_in_one_batch_of_one_image_or_release() -> None:
    assert Counter(cell for batch in BATCHES for cell in batch.cells) == Counter(CELLS)
    assert len({batch.name for batch in BATCHES}) == len(BATCHES)
    for batch in BATCHES:
        images = {DEFAULT.image(cell).tag for cell in batch.cells}
        assert len(images if batch.is_compiled else {cell.flash_attn for cell in batch.cells}) == 1
        runs = [key for key, _ in groupby((cell.torch, cell.python) for cell in batch.cells)]
        assert len(runs) == len(set(runs)), f"{batch.name}: cells of one environment follow each other"
        assert max(batch.minutes) <= MAX_BATCH_MINUTES
        assert batch.wheel_bytes <= MAX_BATCH_BYTES


def test_the_disk_of_the_upload_and_the_predicted_time_cut_a_batch() -> None:
    assert [len(batch.cells) for batch in cut_batches(with_largest_wheel(2000), repeat_cell(7, "ck"))] == [6, 1]
    batches = cut_batches(with_largest_wheel(21), repeat_cell(30, "ck"))
    assert [len(batch.cells) for batch in batches] == [21, 9]
    assert max(batches[0].minutes) <= MAX_BATCH_MINUTES < max(batches[0].minutes) + 10


def test_more_batches_than_one_matrix_takes_are_refused() -> None:
    matrix, cells = with_largest_wheel(2000), 256 * 6
    assert len(cut_batches(matrix, repeat_cell(cells, "ck"))) == 256
    with pytest.raises(InputError, match="1537 cells make 257 batches, GitHub's limit is 256") as caught:
        cut_batches(matrix, repeat_cell(cells + 1, "ck"))
    assert "--only" in caught.value.hint


def test_the_forecast_of_the_default_matrix_of_a_fork_without_a_runner_and_of_kernel_shards() -> None:
    forecast = predict_run(BATCHES, [])
    assert forecast.cell_pulls == 2 * sum(batch.is_compiled for batch in BATCHES) <= 90
    assert forecast.jobs <= 170, "beside the kernel shards"
    fork = predict_run([batch for batch in BATCHES if batch.cells[0].backend is Backend.TRITON], [])
    assert (fork.cell_pulls, fork.wall_hours < 1) == (0, True)
    with_shards = predict_run(BATCHES, [1.0, 3.0])
    assert with_shards.jobs == forecast.jobs + 2
    assert with_shards.wall_hours == pytest.approx(forecast.wall_hours + 3, abs=0.5), "they delay every batch"
    assert with_shards.job_hours == pytest.approx(forecast.job_hours + 4, abs=1)
    nothing = predict_run([], [])
    assert nothing.jobs == 2
    assert nothing.job_hours == nothing.wall_hours < 0.5
    proved = predict_run(BATCHES, [1.0, 3.0], 3)
    assert proved.jobs == with_shards.jobs + 3
    assert proved.wall_hours == pytest.approx(with_shards.wall_hours + 0.3, abs=0.1), "at the same time"


def ck(python: str, torch: str = "2.13.0", rocm: str = "7.2", flash_attn: str = "2.8.3") -> Cell:
    return Cell.from_axes(flash_attn, python, torch, rocm, Backend.CK)


def triton(torch: str = "2.13.0", flash_attn: str = "2.8.3") -> Cell:
    return Cell.from_axes(flash_attn, "3.12", torch, "7.2", Backend.TRITON)


def test_shared_builds_go_first() -> None:
    """First a Triton cell of each release, then a cell of each kernel set, then the cells that link or label."""
    first = (triton(), triton(flash_attn="2.7.4.post1"))
    second = (ck("3.12"), ck("3.12", rocm="7.1"))
    third = (ck("3.11"), ck("3.12", torch="2.12.1"), triton(torch="2.12.1"))
    cells = [second[0], *third[:2], second[1], first[0], third[2], first[1]]
    assert split_into_waves(DEFAULT, cells) == (first, second, third)
    assert split_into_waves(DEFAULT, []) == ()
    assert build_in_parallel(cast(Any, FakePipeline()), []) == []


def test_two_cells_that_share_only_device_code_do_not_compile_at_once() -> None:
    """Both C++ ABIs of a ROCm link the same device code, so the second ABI compiles its host code afterwards."""
    cells = [
        ck(python, torch=torch, rocm="6.1", flash_attn="2.7.4.post1")
        for torch in ("2.6.0", "2.5.1")
        for python in ("3.12", "3.11")
    ]
    assert len({DEFAULT.torch[cell.torch].cxx11_abi for cell in cells}) == 2
    assert split_into_waves(DEFAULT, cells) == ((cells[0],), (cells[2],), (cells[1], cells[3]))


@dataclass(frozen=True)
class FakeExecutor:
    """Builds two cells at once, and has no image for torch 2.12.1."""

    parallel_cells: int = 2

    def prepare_host(self, cell: Cell, part: object) -> None:
        if cell.torch == "2.12.1":
            raise BuildError("no such image", cell.id, "choose another")

    def stop(self) -> None:
        """Nothing runs."""


class FakePipeline:
    """Builds nothing; the second cell runs out of time while the first still builds."""

    context = SimpleNamespace(matrix=DEFAULT)

    def __init__(self, executor: FakeExecutor = FakeExecutor()) -> None:
        self.executor = executor
        self.started: list[Cell] = []
        self.out_of_time = threading.Event()

    def split(self, count: int) -> FakePipeline:
        return self

    def build_and_publish(self, cell: Cell) -> None:
        self.started.append(cell)
        if len(self.started) == 2:
            self.out_of_time.set()
            raise RunAgainError("time limit reached", cell.id, "run it again")
        self.out_of_time.wait(10)
        time.sleep(0.2)


def test_out_of_time_starts_no_other_cell_and_waits_for_running_ones() -> None:
    pipeline, cells = FakePipeline(), [ck("3.12"), ck("3.11"), ck("3.10"), triton()]
    (failure,) = build_in_parallel(cast(Any, pipeline), cells)
    assert isinstance(failure.error, RunAgainError)
    assert pipeline.started == cells[:2]


@pytest.mark.parametrize(("at_once", "started"), [(2, (1, 2)), (1, (0, 1))])
def test_only_cells_that_are_built_at_once_go_in_waves_and_out_of_time_no_later_wave_begins(
    at_once: int, started: tuple[int, ...]
) -> None:
    cells = [ck("3.12"), triton(), triton(flash_attn="2.7.4.post1")]
    pipeline = FakePipeline(FakeExecutor(at_once))
    pipeline.out_of_time.set()
    (failure,) = build_in_waves(cast(Any, pipeline), cells)
    assert isinstance(failure.error, RunAgainError)
    assert {*pipeline.started} == {cells[index] for index in started}


def test_only_a_ck_cell_without_an_image_is_not_started() -> None:
    """Most Triton cells only get a label and need no image."""
    pipeline, cells = FakePipeline(), [ck("3.12", torch="2.12.1"), triton(torch="2.12.1")]
    pipeline.out_of_time.set()
    (failure,) = build_in_parallel(cast(Any, pipeline), cells)
    assert (failure.name, failure.error.what) == (cells[0].id, "no such image")
    assert pipeline.started == cells[1:]


def test_the_exit_code_of_failures_is_that_of_the_first_unless_one_ran_out_of_time() -> None:
    build, late, wrong = (kind("a", "b", "c") for kind in (BuildError, RunAgainError, VerificationError))
    codes: list[tuple[list[FactoryError], int]] = [
        ([], DONE),
        ([build, wrong], BUILD_FAILED),
        ([build, late, wrong], RUN_AGAIN),
    ]
    for errors, code in codes:
        assert exit_code([Failure(ck("3.12").id, error) for error in errors]) == code
