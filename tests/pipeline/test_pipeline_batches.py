"""Batches: cells of one image in one job, within the time of a job and the disk of the upload."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
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
from wheelfactory.pipeline.run import Failure, build_in_parallel, exit_code

SMALL = small_matrix()
DEFAULT = load_matrix(MATRIX)
CELLS = expand(DEFAULT).cells
BATCHES = cut_batches(DEFAULT, CELLS)


def with_largest_wheel(megabytes: int) -> Matrix:
    return Matrix.model_validate_json(SMALL.model_dump_json(by_alias=True).replace("1000 MB", f"{megabytes} MB"))


def repeat_cell(count: int, backend: str) -> tuple[Cell, ...]:
    found = next(cell for cell in expand(SMALL).cells if cell.backend == backend)
    return (found,) * count


def test_every_cell_of_the_default_matrix_is_in_one_batch_with_a_name_of_its_own() -> None:
    assert Counter(cell for batch in BATCHES for cell in batch.cells) == Counter(CELLS)
    assert len({batch.name for batch in BATCHES}) == len(BATCHES)


def test_a_batch_has_one_image_or_release_and_cells_of_one_environment_follow_each_other() -> None:
    for batch in BATCHES:
        images = {DEFAULT.image(cell).tag for cell in batch.cells}
        assert len(images if batch.is_compiled else {cell.flash_attn for cell in batch.cells}) == 1
        runs = [key for key, _ in groupby((cell.torch, cell.python) for cell in batch.cells)]
        assert len(runs) == len(set(runs)), batch.name


def test_a_batch_keeps_the_time_of_a_job_and_the_disk_of_the_upload() -> None:
    assert all(max(batch.minutes) <= MAX_BATCH_MINUTES and batch.wheel_bytes <= MAX_BATCH_BYTES for batch in BATCHES)


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


def test_the_default_matrix_pulls_at_most_ninety_images_for_its_cells() -> None:
    forecast = predict_run(BATCHES, [])
    assert forecast.cell_pulls == 2 * sum(batch.is_compiled for batch in BATCHES) <= 90
    assert forecast.jobs <= 170, "beside the kernel shards"


def test_a_fork_without_a_runner_has_its_site_within_an_hour() -> None:
    triton = [batch for batch in BATCHES if batch.cells[0].backend is Backend.TRITON]
    forecast = predict_run(triton, [])
    assert forecast.cell_pulls == 0
    assert forecast.wall_hours < 1


def test_kernel_shards_add_a_job_each_and_delay_every_batch() -> None:
    without, with_shards = predict_run(BATCHES, []), predict_run(BATCHES, [1.0, 3.0])
    assert with_shards.jobs == without.jobs + 2
    assert with_shards.wall_hours == pytest.approx(without.wall_hours + 3, abs=0.5)
    assert with_shards.job_hours == pytest.approx(without.job_hours + 4, abs=1)
    proved = predict_run(BATCHES, [1.0, 3.0], 3)
    assert proved.jobs == with_shards.jobs + 3
    assert proved.wall_hours == pytest.approx(with_shards.wall_hours + 0.3, abs=0.1), "at the same time"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(MATRIX)


def ck(python: str, torch: str = "2.13.0", rocm: str = "7.2", flash_attn: str = "2.8.3") -> Cell:
    return Cell.from_axes(flash_attn, python, torch, rocm, Backend.CK)


def triton(torch: str = "2.13.0", flash_attn: str = "2.8.3") -> Cell:
    return Cell.from_axes(flash_attn, "3.12", torch, "7.2", Backend.TRITON)


def test_shared_builds_go_first(matrix: Matrix) -> None:
    """First a Triton cell of each release, then a cell of each kernel set, then the cells that link or label."""
    cells = [
        ck("3.12"),
        ck("3.11"),
        ck("3.12", torch="2.12.1"),
        ck("3.12", rocm="7.1"),
        triton(),
        triton(torch="2.12.1"),
        triton(flash_attn="2.7.4.post1"),
    ]
    assert split_into_waves(matrix, cells) == (
        (cells[4], cells[6]),
        (cells[0], cells[3]),
        (cells[1], cells[2], cells[5]),
    )


def test_two_cells_that_share_only_device_code_do_not_compile_at_once(matrix: Matrix) -> None:
    """Both C++ ABIs of a ROCm link the same device code, so the second ABI compiles its host code afterwards."""
    cells = [
        ck("3.12", torch="2.6.0", rocm="6.1", flash_attn="2.7.4.post1"),
        ck("3.11", torch="2.6.0", rocm="6.1", flash_attn="2.7.4.post1"),
        ck("3.12", torch="2.5.1", rocm="6.1", flash_attn="2.7.4.post1"),
        ck("3.11", torch="2.5.1", rocm="6.1", flash_attn="2.7.4.post1"),
    ]
    assert len({matrix.torch[cell.torch].cxx11_abi for cell in cells}) == 2
    assert split_into_waves(matrix, cells) == ((cells[0],), (cells[2],), (cells[1], cells[3]))


def test_nothing_to_build_is_no_wave(matrix: Matrix) -> None:
    assert split_into_waves(matrix, []) == ()
    assert build_in_parallel(cast(Any, FakePipeline()), cast(Any, FakeExecutor()), []) == []


@dataclass(frozen=True)
class FakeExecutor:
    """Builds two cells at once, and has no image for torch 2.12.1."""

    parallel_cells: int = 2

    def prepare_host(self, cell: Cell, part: object) -> None:
        if cell.torch == "2.12.1":
            raise BuildError("no such image", cell.id, "choose another")

    def split(self, count: int) -> FakeExecutor:
        return self

    def stop(self) -> None:
        """Nothing runs."""


class FakePipeline:
    """Builds nothing; the second cell runs out of time while the first still builds."""

    def __init__(self) -> None:
        self.started: list[Cell] = []
        self.out_of_time = threading.Event()

    def build_and_publish(self, executor: object, cell: Cell) -> None:
        self.started.append(cell)
        if len(self.started) == 2:
            self.out_of_time.set()
            raise RunAgainError("time limit reached", cell.id, "run it again")
        self.out_of_time.wait(10)
        time.sleep(0.2)


def test_out_of_time_starts_no_other_cell_and_waits_for_running_ones(matrix: Matrix) -> None:
    pipeline, cells = FakePipeline(), [ck("3.12"), ck("3.11"), ck("3.10"), triton()]
    (failure,) = build_in_parallel(cast(Any, pipeline), cast(Any, FakeExecutor()), cells)
    assert isinstance(failure.error, RunAgainError)
    assert pipeline.started == cells[:2]


def test_only_a_ck_cell_without_an_image_is_not_started(matrix: Matrix) -> None:
    """Most Triton cells only get a label and need no image."""
    pipeline, cells = FakePipeline(), [ck("3.12", torch="2.12.1"), triton(torch="2.12.1")]
    pipeline.out_of_time.set()
    (failure,) = build_in_parallel(cast(Any, pipeline), cast(Any, FakeExecutor()), cells)
    assert (failure.name, failure.error.what) == (cells[0].id, "no such image")
    assert pipeline.started == cells[1:]


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ((), DONE),
        ((BuildError("a", "b", "c"), VerificationError("a", "b", "c")), BUILD_FAILED),
        ((BuildError("a", "b", "c"), RunAgainError("a", "b", "c"), VerificationError("a", "b", "c")), RUN_AGAIN),
    ],
    ids=["none", "the first in matrix order", "one ran out of time"],
)
def test_the_exit_code_of_failures(errors: tuple[FactoryError, ...], code: int) -> None:
    assert exit_code([Failure(ck("3.12").id, error) for error in errors]) == code
