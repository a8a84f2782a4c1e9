"""Evidence is added to rows of published wheels: all or none, and only for the very bytes that were validated."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Cli
from release_factory import content_of, flash_attn_wheel, make_release, stub_wheel
from validations import CASES, LATER, TIME, amd_validation, nvidia_validation, write_validation
from wheelfactory.core.errors import BAD_INPUT, DONE, InputError, PublishError
from wheelfactory.core.files import ROOT
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.gpu.validate.report import Validation
from wheelfactory.release.additions import read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.evidence import as_evidence
from wheelfactory.release.manifest import WheelRow, read_manifest
from wheelfactory.release.transaction import add_evidence, publish
from wheelfactory.verify.result import Status

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
OTHER_CELL = "fa2.8.3-rocm7.2-torch2.9.1-py3-triton"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A release with two flash-attn wheels and a dependency."""
    made, release = tmp_path / "made", tmp_path / "release"
    wheels = [flash_attn_wheel(made, cell) for cell in (CELL, OTHER_CELL)]
    make_release(release, [*wheels, stub_wheel(made, "einops", "0.8.2")])
    return release


def row_at(folder: Path, cell: str = CELL) -> WheelRow:
    (row,) = (row for row in read_manifest(folder) if row.cell == cell)
    return row


def add(folder: Path, *validations: Validation) -> tuple[WheelRow, ...]:
    return add_evidence(DirectoryPublisher(folder), validations)


def test_the_row_of_the_wheel_carries_it_and_nothing_else_changes(folder: Path) -> None:
    before = content_of(folder)
    row = row_at(folder)
    rows = add(folder, amd_validation(row))
    assert rows == read_manifest(folder)
    assert row_at(folder).evidence == (as_evidence(amd_validation(row)),)
    assert row_at(folder).model_copy(update={"evidence": ()}) == row
    assert row_at(folder, OTHER_CELL).evidence == ()
    after = content_of(folder)
    assert {name for name in after if after[name] != before.get(name)} == {MANIFEST_NAME}


def test_several_reports_are_added_at_once_each_to_its_wheel(folder: Path, tmp_path: Path) -> None:
    one, other = row_at(folder), row_at(folder, OTHER_CELL)
    add(folder, amd_validation(one), nvidia_validation(other), nvidia_validation(one))
    publish(DirectoryPublisher(folder), [(read_wheel_row(tmp_path / "made" / one.filename), None)])  # which keeps it
    assert [piece.device for piece in row_at(folder).evidence] == ["AMD Instinct MI300X", "NVIDIA H200"]
    assert [piece.is_test_mode for piece in row_at(folder, OTHER_CELL).evidence] == [True]


@pytest.mark.parametrize("order", [1, -1], ids=["older first", "newer first"])
def test_of_several_for_one_wheel_arch_and_mode_the_newest_stays(folder: Path, order: int) -> None:
    row = row_at(folder)
    add(folder, *[amd_validation(row), amd_validation(row, time=LATER)][::order])
    assert [piece.time for piece in row_at(folder).evidence] == [LATER]
    with pytest.raises(PublishError, match="newer evidence is already published") as refused:
        add(folder, amd_validation(row))
    assert refused.value.which == f"{row.filename} on gfx942 (2026-11-24 09:30)"
    assert [piece.time for piece in row_at(folder).evidence] == [LATER]
    add(folder, nvidia_validation(row))  # the time of another mode does not matter
    assert [piece.time for piece in row_at(folder).evidence] == [LATER, TIME]


def test_one_bad_report_stops_them_all(folder: Path) -> None:
    row, before = row_at(folder), content_of(folder)
    failed = CASES[0].model_copy(update={"status": Status.FAILED})
    unpublished = "cannot add evidence to a wheel that is not published:"
    for changes, of_report, message in (
        ({"sha256": "0" * 64}, {}, f"the validated file differs from the published one: {row.filename}"),
        ({"sha256": "0" * 64, "filename": "another.whl"}, {}, f"{unpublished} another.whl"),
        (None, {}, f"{unpublished} flash-attn 2.8.3"),  # an installed one
        ({}, {"cases": (failed,)}, f"not evidence: {row.filename} on AMD Instinct MI300X (failed: "),
    ):
        bad = amd_validation(*([] if changes is None else [row.model_copy(update=changes)]), **of_report)
        with pytest.raises((InputError, PublishError)) as refused:
            add(folder, amd_validation(row), bad)
        assert str(refused.value).startswith(message)
        assert content_of(folder) == before


@pytest.fixture
def matrix() -> str:
    return str(ROOT / "examples/seed-matrix.yaml")


def test_the_command_adds_reports_and_writes_the_site_anew(cli: Cli, folder: Path, tmp_path: Path, matrix: str) -> None:
    reports = [write_validation(tmp_path / "a.json", amd_validation(row_at(folder)))]
    reports += [write_validation(tmp_path / "b.json", nvidia_validation(row_at(folder, OTHER_CELL)))]
    command = ("publish", folder, "--evidence", *reports, "--matrix", matrix)
    assert cli(*command) == (DONE, f"{folder}: 3 files published\n", "")
    page, data = (folder / "packages.md").read_text(), (folder / "search/data.js").read_text()
    assert ", verified on gfx942 |" in page
    assert ", numbers computed on NVIDIA H200 in the non-AMD GPU test mode |" in page
    assert "verified on gfx942 (AMD Instinct MI300X)" in data
    after = content_of(folder)
    assert cli(*command).code == DONE
    assert content_of(folder) == after


def test_an_invalid_report_changes_nothing(cli: Cli, folder: Path, tmp_path: Path, matrix: str) -> None:
    good = write_validation(tmp_path / "a.json", amd_validation(row_at(folder)))
    (tmp_path / "b.json").write_text(good.read_text()[:-5])
    before = content_of(folder)
    shown = cli("publish", folder, "--evidence", good, tmp_path / "b.json", "--matrix", matrix)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert shown.err.startswith(f"error: not a validation report: {tmp_path}/b.json: Invalid JSON: ")
    assert content_of(folder) == before
