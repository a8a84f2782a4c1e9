"""Merging the rows of manifests that were published at the same time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from release_factory import additions, flash_attn_wheel, stub_wheel
from validations import amd_validation
from wheelfactory.release.evidence import as_evidence
from wheelfactory.release.manifest import WheelRow
from wheelfactory.release.merge import merge_rows

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"


@pytest.fixture
def row(tmp_path: Path) -> WheelRow:
    return additions([flash_attn_wheel(tmp_path, CELL)])[0][0]


@pytest.fixture
def other(tmp_path: Path) -> WheelRow:
    return additions([stub_wheel(tmp_path, "einops", "0.8.2")])[0][0]


def test_rows_that_only_one_has_stay(row: WheelRow, other: WheelRow) -> None:
    assert merge_rows([row], [other]) == (row, other)
    assert merge_rows([row], []) == merge_rows([], [row]) == (row,)


def test_a_yank_of_either_counts_and_the_newer_reason(row: WheelRow) -> None:
    newer, older = (row.model_copy(update={"yanked": reason}) for reason in ("newer", "older"))
    assert merge_rows([row], [older]) == (older,)
    assert merge_rows([newer], [row]) == merge_rows([newer], [older]) == (newer,)


def test_evidence_of_both_counts_and_the_newest_of_a_gpu(row: WheelRow) -> None:
    piece = as_evidence(amd_validation(row))
    later = piece.model_copy(update={"time": piece.time + timedelta(days=1)})
    elsewhere = piece.model_copy(update={"arch": "gfx90a"})

    def with_evidence(*pieces: object) -> WheelRow:
        return row.model_copy(update={"evidence": pieces})

    assert merge_rows([row], [with_evidence(piece)]) == (with_evidence(piece),)
    for newer, older in ((piece, later), (later, piece)):
        assert merge_rows([with_evidence(newer)], [with_evidence(older)]) == (with_evidence(later),)
    (merged,) = merge_rows([with_evidence(piece)], [with_evidence(elsewhere)])
    assert {one.arch for one in merged.evidence} == {"gfx942", "gfx90a"}


def test_of_different_files_with_one_name_the_newer_row_counts(row: WheelRow) -> None:
    different = row.model_copy(update={"sha256": "0" * 64, "yanked": "other bytes"})
    assert merge_rows([row], [different]) == (row,)


def test_rows_made_from_the_older_ones_are_unchanged_in_their_order(row: WheelRow, other: WheelRow) -> None:
    for newer in ((row, other), (other, row)):
        assert merge_rows(newer, [row]) == newer
