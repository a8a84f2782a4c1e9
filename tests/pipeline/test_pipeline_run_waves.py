"""Which cells are built first, so that no two of those that are built at once make the same thing."""

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
from wheelfactory.pipeline.run import Failure, build_in_parallel, exit_code, split_into_waves


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(MATRIX)


def ck(python: str, torch: str = "2.13.0", rocm: str = "7.2", flash_attn: str = "2.8.3") -> Cell:
    return Cell.from_axes(flash_attn, python, torch, rocm, Backend.CK)


def triton(torch: str = "2.13.0", flash_attn: str = "2.8.3") -> Cell:
    return Cell.from_axes(flash_attn, "3.12", torch, "7.2", Backend.TRITON)


def test_one_cell_of_each_kernel_set_goes_before_those_that_only_link(matrix: Matrix) -> None:
    cells = [ck("3.12"), ck("3.11"), ck("3.12", torch="2.12.1"), ck("3.12", rocm="7.1"), ck("3.11", rocm="7.1")]
    first, second = split_into_waves(matrix, cells)
    assert first == (cells[0], cells[3])
    assert second == (cells[1], cells[2], cells[4])


def test_triton_wheels_are_made_before_the_machine_is_divided_among_kernel_sets(matrix: Matrix) -> None:
    cells = [ck("3.12"), triton(), ck("3.12", rocm="7.1")]
    assert split_into_waves(matrix, cells) == ((cells[1],), (cells[0], cells[2]))


def test_one_triton_cell_of_each_release_goes_before_those_that_only_get_a_label(matrix: Matrix) -> None:
    cells = [triton(), triton(torch="2.12.1"), triton(flash_attn="2.7.4.post1")]
    assert split_into_waves(matrix, cells) == ((cells[0], cells[2]), (cells[1],))


def test_cells_that_share_nothing_are_one_wave(matrix: Matrix) -> None:
    cells = [ck("3.12"), ck("3.12", rocm="7.1"), ck("3.12", flash_attn="2.7.4.post1")]
    assert split_into_waves(matrix, cells) == (tuple(cells),)


def test_no_cell_is_lost_or_built_twice(matrix: Matrix) -> None:
    cells = [ck(python, torch) for python in ("3.10", "3.11") for torch in ("2.11.0", "2.13.0")] + [triton()]
    assert sorted((cell for wave in split_into_waves(matrix, cells) for cell in wave), key=str) == sorted(
        cells, key=str
    )
    assert split_into_waves(matrix, []) == ()
    assert build_in_parallel(cast(Any, Line()), cast(Any, TwoAtOnce()), []) == []


@dataclass(frozen=True)
class TwoAtOnce:
    """As much of an executor as choosing what is built next asks for."""

    at_once: int = 2

    def place(self, cell: Cell, part: object) -> None:
        if cell.torch == "2.12.1":
            raise BuildError("no such image", cell.id, "take another")

    def divided(self, count: int) -> TwoAtOnce:
        return self

    def stop(self) -> None:
        """Nothing runs."""


class Line:
    """Takes cells without building them; the time is up at the second, while the first is under way."""

    def __init__(self) -> None:
        self.begun: list[Cell] = []
        self.up = threading.Event()

    def run(self, executor: object, cell: Cell) -> None:
        self.begun.append(cell)
        if len(self.begun) == 2:
            self.up.set()
            raise RunAgainError("the time is up", cell.id, "run it again")
        self.up.wait(10)
        time.sleep(0.2)


def test_after_one_whose_time_is_up_no_other_is_begun_and_those_under_way_are_waited_for(matrix: Matrix) -> None:
    line, cells = Line(), [ck("3.12"), ck("3.11"), ck("3.10"), triton()]
    (failure,) = build_in_parallel(cast(Any, line), cast(Any, TwoAtOnce()), cells)
    assert isinstance(failure.error, RunAgainError)
    assert line.begun == cells[:2]


def test_a_cell_whose_image_cannot_be_had_is_not_begun_and_the_others_are(matrix: Matrix) -> None:
    line, cells = Line(), [ck("3.12", torch="2.12.1"), ck("3.12")]
    line.up.set()
    (failure,) = build_in_parallel(cast(Any, line), cast(Any, TwoAtOnce()), cells)
    assert (failure.name, failure.error.what) == (cells[0].id, "no such image")
    assert line.begun == cells[1:]


def test_no_place_is_made_for_wheels_that_may_only_get_a_label(matrix: Matrix) -> None:
    line, cells = Line(), [triton(torch="2.12.1"), triton()]
    line.up.set()
    build_in_parallel(cast(Any, line), cast(Any, TwoAtOnce()), cells)
    assert line.begun == cells


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ((), DONE),
        ((BuildError("a", "b", "c"), VerificationError("a", "b", "c")), BUILD_FAILED),
        ((BuildError("a", "b", "c"), RunAgainError("a", "b", "c"), VerificationError("a", "b", "c")), RUN_AGAIN),
    ],
    ids=["none", "the first in the order of the matrix", "time was up for one"],
)
def test_what_failures_come_to_does_not_depend_on_which_ended_last(errors: tuple[FactoryError, ...], code: int) -> None:
    assert exit_code([Failure(ck("3.12").id, error) for error in errors]) == code
