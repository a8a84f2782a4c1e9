"""Waves and parallel builds: no two cells that build at once make the same thing, and a time limit stops the rest."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, cast

import pytest

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.checkout import MATRIX
from wheelfactory.core.errors import (
    BUILD_FAILED,
    DONE,
    RUN_AGAIN,
    BuildError,
    FactoryError,
    RunAgainError,
    VerificationError,
)
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.run import Failure, build_in_parallel, exit_code
from wheelfactory.pipeline.waves import split_into_waves


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


def test_cells_that_share_nothing_are_one_wave(matrix: Matrix) -> None:
    cells = [ck("3.12"), ck("3.12", rocm="7.1"), ck("3.12", flash_attn="2.7.4.post1")]
    assert split_into_waves(matrix, cells) == (tuple(cells),)


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
