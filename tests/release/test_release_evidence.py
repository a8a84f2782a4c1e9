"""Evidence: what it keeps of a validation, what is refused, and how it is added to rows of published wheels."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from command_line import Cli
from release_factory import content_of, flash_attn_wheel, make_release, plain_row, stub_wheel
from validations import CASES, DROPPED, H200, LATER, MI300X, TIME, amd_validation, nvidia_validation, write_validation
from wheelfactory.core.errors import BAD_INPUT, DONE, InputError, PublishError
from wheelfactory.core.files import ROOT
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.gpu.validation_report import (
    Hardware,
    ResultError,
    ValidatedPackage,
    Validation,
    ValidationCase,
    ValidationCheck,
)
from wheelfactory.release.additions import read_wheel_row
from wheelfactory.release.directory import DirectoryPublisher
from wheelfactory.release.evidence import Evidence, NearestResult, as_evidence, merge_evidence
from wheelfactory.release.manifest import WheelRow, read_manifest, verified_archs
from wheelfactory.release.transaction import add_evidence, publish
from wheelfactory.verify.result import GateResult, Status

FALLBACK = ValidatedPackage(project="flash-attention-amd", version="0.1.0", sha256="7" * 64)
MI250X = Hardware(vendor="amd", device="AMD Instinct MI250X", arch="gfx90a")


def a_row(*validations: Validation, gates: tuple[GateResult, ...] = ()) -> WheelRow:
    """A row with this evidence and these gates."""
    return plain_row(gates=gates, evidence=tuple(map(as_evidence, validations)))


def a_case(*errors: tuple[float, float], status: Status = Status.PASSED, detail: str = "") -> ValidationCase:
    """A case with these errors and bounds."""
    result_errors = tuple(ResultError(result="dq", error=error, bound=bound) for error, bound in errors)
    return ValidationCase(name="fp16 d32", status=status, errors=result_errors, detail=detail)


def test_evidence_keeps_hardware_software_and_the_nearest_result() -> None:
    found = as_evidence(amd_validation(hardware=MI300X.model_copy(update={"arch": "gfx942:sramecc+:xnack-"})))
    assert (found.vendor, found.device, found.arch) == ("amd", "AMD Instinct MI300X", "gfx942")
    assert (found.torch, found.hip, found.cuda, found.triton) == ("2.9.1+rocm6.4", "6.4.43482", None, "3.5.1")
    assert found.modules == ("flash_attn.flash_attn_triton_amd.interface_fa",)
    assert (found.cases, found.not_run) == (2, 1)
    assert found.nearest == NearestResult(case="fp16 d64 causal", result="dq", error=0.003, bound=0.004)
    assert (found.time, found.factory, found.is_test_mode) == (TIME, "0.1.0", False)
    exact = amd_validation(cases=(a_case((0.0, 0.0)), a_case((0.1, 0.2))))
    assert as_evidence(exact).nearest.bound == 0.2, "a bound that is nothing is not the nearest"


def test_evidence_of_the_test_mode_keeps_the_dropped_options_and_the_fallback_needs_no_such_mode() -> None:
    found = as_evidence(nvidia_validation())
    assert (found.is_test_mode, found.dropped_launch_options) == (True, DROPPED)
    assert as_evidence(nvidia_validation(dropped_launch_options=())).is_test_mode
    found = as_evidence(nvidia_validation(dropped_launch_options=None, validated=FALLBACK))
    assert (found.vendor, found.is_test_mode) == ("nvidia", False)


def test_a_row_with_impossible_evidence_is_refused() -> None:
    """A manifest may have been written by anybody; an index and a page would repeat it."""
    cases: list[dict[str, object]] = [
        {"cases": 0},  # no case
        {"not_run": -1},  # fewer than none not run
        {"modules": ()},  # no function called
        {"nearest": {"case": "x", "result": "dq", "error": 2.0, "bound": 1.0}},  # beyond its bound
        {"nearest": {"case": "x", "result": "dq", "error": 1.0, "bound": -1.0}},  # no bound
    ]
    for changes in cases:
        good = as_evidence(amd_validation()).model_dump(mode="json")
        with pytest.raises(ValidationError):
            Evidence.model_validate({**good, **changes})


def test_validations_without_proof_are_refused_with_the_reason() -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"cases": (*CASES, a_case((0.2, 0.1), status=Status.FAILED))}, "failed: fp16 d32"),  # a wrong number
        ({"checks": (ValidationCheck(name="label", status=Status.FAILED),)}, "failed: label"),
        ({"hardware": Hardware()}, "no GPU computed"),  # no GPU
        ({"cases": ()}, "no case was computed"),  # no case
        ({"cases": (a_case(status=Status.NOT_RUN, detail="no GPU"),)}, "no case was computed"),  # every case not run
        ({"cases": (*CASES, a_case(status=Status.NOT_RUN))}, "not run, without a reason: fp16 d32"),
        ({"cases": (*CASES, a_case((0.2, 0.1)))}, "marked as passed, but outside its bounds: fp16 d32"),
        ({"cases": (*CASES, a_case((math.nan, 0.1)))}, "outside its bounds: fp16 d32"),  # no number
        ({"cases": (*CASES, a_case((0.1, math.inf)))}, "outside its bounds: fp16 d32"),  # no bound
        ({"cases": (*CASES, a_case((-0.1, 0.1)))}, "outside its bounds: fp16 d32"),  # less than no error
        ({"cases": (*CASES, a_case())}, "outside its bounds: fp16 d32"),  # passed without a number
        ({"symbols": {}}, "no backend function was called"),  # no function called
        ({"validated": ValidatedPackage(project="flash-attn", version="2.8.3")}, "validate the wheel"),
        ({"dropped_launch_options": DROPPED}, "proves nothing on an AMD GPU"),  # test mode on AMD
        ({"hardware": H200}, "only in the test mode"),  # NVIDIA without the test mode
        ({"hardware": Hardware(vendor="amd")}, "the GPU has no name or arch"),  # a GPU without a name
    ]
    for changed, reason in cases:
        with pytest.raises(InputError, match="not evidence") as refused:
            as_evidence(amd_validation(**changed))
        assert refused.value.which.startswith("flash-attn 2.8.3")
        assert reason in refused.value.which
        assert "wheelfactory validate" in refused.value.hint


def test_the_newest_piece_of_each_arch_and_mode_stays_whatever_the_order() -> None:
    plain = as_evidence(nvidia_validation(dropped_launch_options=None, validated=FALLBACK))
    amd, newer, nvidia = map(as_evidence, (amd_validation(), amd_validation(time=LATER), nvidia_validation()))
    pieces = (as_evidence(amd_validation(hardware=MI250X)), newer, plain, nvidia)
    held = merge_evidence(*pieces[2:], amd, *pieces[1::-1])
    assert held == merge_evidence(*held, pieces[0]) == merge_evidence(*held, amd) == pieces


def test_a_row_is_verified_on_the_archs_of_its_evidence_and_of_its_gpu_gate() -> None:
    gate = GateResult.from_findings("gpu", [], versions={"gpu": "gfx1100:xnack-", "torch": "2.9.1"})
    assert verified_archs(a_row(amd_validation(), amd_validation(hardware=MI250X), gates=(gate,))) == (
        "gfx90a",
        "gfx942",
        "gfx1100",
    )


def test_no_other_gate_and_no_test_mode_that_calls_itself_amd_verifies_an_arch() -> None:
    cases: list[GateResult] = [
        GateResult.not_run("gpu", "no GPU"),  # not run
        GateResult(gate="gpu", status=Status.FAILED, versions={"gpu": "gfx942"}),  # failed
        GateResult.from_findings("interpreter", [], versions={"gpu": "gfx942"}),  # another gate
        GateResult.from_findings("gpu", []),  # no arch
    ]
    for gate in cases:
        assert verified_archs(a_row(gates=(gate,))) == ()
    row = a_row(amd_validation())
    piece = row.evidence[0].model_copy(update={"dropped_launch_options": DROPPED})
    assert verified_archs(row.model_copy(update={"evidence": (piece,)})) == ()


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
