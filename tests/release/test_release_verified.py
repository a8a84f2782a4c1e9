"""A wheel is verified by the gates that this checkout requires; its row never loses a passed gate."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from release_factory import flash_attn_wheel, passed_gates, quick_gates
from report_rows import einops_row, rows_of
from validations import amd_validation
from wheelfactory.release.additions import read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.evidence import as_evidence
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.release.transaction import publish
from wheelfactory.release.verified import merge_rows, merge_verified_gates, unchecked_since, unverified_reason
from wheelfactory.verify.result import GateResult, Status

TRITON, CK = "fa2.8.3-rocm7.2-torch2.13.0-py3-triton", "fa2.8.3-rocm6.4-torch2.9.1-cp311-ck"
NOT_CHECKED = "not checked: numbers"
GPU = GateResult.from_findings("gpu", [], versions={"gpu": "gfx942"})


@pytest.fixture
def quick(tmp_path: Path) -> WheelRow:
    """The row of a wheel that ``run --quick`` made."""
    (row,) = rows_of(tmp_path, [TRITON], gates=quick_gates(TRITON))
    return row


@pytest.fixture
def full(quick: WheelRow) -> WheelRow:
    """The row that the same wheel has when every required gate passed."""
    return quick.model_copy(update={"gates": (*passed_gates(TRITON), GateResult.not_run("gpu", "not asked for"))})


@pytest.mark.parametrize("cell", [TRITON, CK])
def test_a_wheel_that_passed_its_required_gates_is_verified(tmp_path: Path, quick: WheelRow, cell: str) -> None:
    (row,) = rows_of(tmp_path, [cell])
    assert (unverified_reason(row), unverified_reason(quick)) == ("", NOT_CHECKED)


def test_a_gate_that_a_row_does_not_name_was_added_later_and_must_pass_before_publishing(
    quick: WheelRow, full: WheelRow
) -> None:
    """Whatever the row says was required."""
    for required in (True, False):
        gates = [gate.model_copy(update={"required": required}) for gate in quick.gates if gate.status is Status.PASSED]
        older = quick.model_copy(update={"gates": gates})
        assert (unverified_reason(older), unchecked_since(older)) == ("", "added later: numbers")
        assert unverified_reason(older, is_published=False) == NOT_CHECKED
        assert merge_verified_gates(older, full) == full
        assert merge_verified_gates(older, quick) is older
    assert unchecked_since(quick) == ""


def test_nothing_is_required_of_a_dependency_and_all_of_the_fallback(tmp_path: Path) -> None:
    einops = einops_row(tmp_path)
    assert unverified_reason(einops) == ""
    fallback = einops.model_copy(update={"project": "flash-attention-amd"})
    assert unverified_reason(fallback) == "not checked: archive, identity, record, contents, import, numbers"


def test_a_row_gets_the_gates_that_verify_its_wheel_and_keeps_the_rest(quick: WheelRow, full: WheelRow) -> None:
    yanked = quick.model_copy(update={"yanked": "broken"})
    later = full.model_copy(update={"published": full.published.replace(year=2030)})
    assert merge_verified_gates(yanked, later) == yanked.model_copy(update={"gates": full.gates})


def test_a_row_never_loses_a_passed_gate(quick: WheelRow, full: WheelRow) -> None:
    assert merge_verified_gates(full, quick) is full
    failed = GateResult(gate="gpu", status=Status.FAILED)
    assert merge_verified_gates(quick, full.model_copy(update={"gates": (*full.gates[:-1], failed)})) is quick
    on_gpu = full.model_copy(update={"gates": (*full.gates[:-1], GPU)})
    assert merge_verified_gates(on_gpu, full) is on_gpu
    on_gpu = quick.model_copy(update={"gates": (*quick.gates, GPU)})
    assert merge_verified_gates(on_gpu, full).gates == (*full.gates[:-1], GPU)


def test_publishing_a_wheel_again_updates_its_row_and_no_file(tmp_path: Path) -> None:
    wheel = flash_attn_wheel(tmp_path, TRITON)
    folder = tmp_path / "release"
    publisher = DirectoryPublisher(folder)
    row = read_wheel_row(wheel, quick_gates(TRITON))
    publish(publisher, [(row, wheel)])
    before = (folder / "wheels" / wheel.name).stat().st_mtime_ns
    publish(publisher, [(read_wheel_row(wheel, passed_gates(TRITON)), wheel)])
    (now,) = read_manifest(folder)
    assert now == row.model_copy(update={"gates": passed_gates(TRITON)})
    assert (folder / "wheels" / wheel.name).stat().st_mtime_ns == before
    publish(publisher, [(row, wheel)])
    assert read_manifest(folder) == (now,)


@pytest.fixture
def row(tmp_path: Path) -> WheelRow:
    return rows_of(tmp_path, [TRITON])[0]


def test_rows_and_yanks_of_either_count_in_the_order_of_the_newer(row: WheelRow, tmp_path: Path) -> None:
    other = einops_row(tmp_path)
    assert merge_rows([row], [other]) == (row, other)
    assert merge_rows([row], []) == merge_rows([], [row]) == (row,)
    for rows in ((row, other), (other, row)):
        assert merge_rows(rows, [row]) == rows
    newer, older = (row.model_copy(update={"yanked": reason}) for reason in ("newer", "older"))
    assert merge_rows([row], [older]) == (older,)
    assert merge_rows([newer], [row]) == merge_rows([newer], [older]) == (newer,)
    different = row.model_copy(update={"sha256": "0" * 64, "yanked": "other bytes"})
    assert merge_rows([row], [different]) == (row,), "of different files with one name the newer row counts"


def test_evidence_of_both_counts_and_the_newest_of_a_gpu(row: WheelRow) -> None:
    piece = as_evidence(amd_validation(row))
    later = piece.model_copy(update={"time": piece.time + timedelta(days=1)})
    elsewhere = piece.model_copy(update={"arch": "gfx90a"})
    without, first, second, other = (
        row.model_copy(update={"evidence": pieces}) for pieces in ((), (piece,), (later,), (elsewhere,))
    )
    assert merge_rows([without], [first]) == (first,)
    assert merge_rows([first], [second]) == merge_rows([second], [first]) == (second,)
    (merged,) = merge_rows([first], [other])
    assert {one.arch for one in merged.evidence} == {"gfx942", "gfx90a"}
