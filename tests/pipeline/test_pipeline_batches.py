"""Batches: cells of one image in one job, within the time of a job and the disk of the upload."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from small_matrix import small_matrix
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.checkout import MATRIX
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.batches import MAX_BATCH_BYTES, MAX_BATCH_MINUTES, cut_batches, predict_run

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


def test_a_batch_has_one_backend_and_one_image_or_one_release() -> None:
    for batch in BATCHES:
        assert len({cell.backend for cell in batch.cells}) == 1
        images = {DEFAULT.image(cell).tag for cell in batch.cells}
        assert len(images if batch.is_compiled else {cell.flash_attn for cell in batch.cells}) == 1


def test_cells_of_one_environment_follow_each_other_in_a_batch() -> None:
    for batch in BATCHES:
        runs = [key for key, _ in groupby((cell.torch, cell.python) for cell in batch.cells)]
        assert len(runs) == len(set(runs)), batch.name


def test_a_batch_keeps_the_time_of_a_job_and_the_disk_of_the_upload() -> None:
    assert all(max(batch.minutes) <= MAX_BATCH_MINUTES and batch.wheel_bytes <= MAX_BATCH_BYTES for batch in BATCHES)


def test_wheels_of_a_batch_fit_the_disk_at_their_largest() -> None:
    def sizes(megabytes: int, count: int) -> list[int]:
        return [len(batch.cells) for batch in cut_batches(with_largest_wheel(megabytes), repeat_cell(count, "ck"))]

    assert sizes(1000, 13) == [12, 1]
    assert sizes(2000, 7) == [6, 1]


def test_the_predicted_time_cuts_a_batch_too() -> None:
    batches = cut_batches(with_largest_wheel(21), repeat_cell(30, "ck"))
    assert [len(batch.cells) for batch in batches] == [21, 9]
    assert max(batches[0].minutes) <= MAX_BATCH_MINUTES < max(batches[0].minutes) + 10


def test_more_batches_than_one_matrix_takes_are_refused() -> None:
    matrix, cells = with_largest_wheel(2000), 256 * 6
    assert len(cut_batches(matrix, repeat_cell(cells, "ck"))) == 256
    with pytest.raises(InputError, match="1537 cells make 257 batches, GitHub's limit is 256") as caught:
        cut_batches(matrix, repeat_cell(cells + 1, "ck"))
    assert "--only" in caught.value.hint


def test_the_default_matrix_pulls_at_most_seventy_images_for_its_cells() -> None:
    forecast = predict_run(BATCHES, [])
    assert forecast.cell_pulls == 2 * sum(batch.is_compiled for batch in BATCHES) <= 70
    assert forecast.jobs <= 128, "beside the kernel shards"


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
