"""Evidence: what it keeps of a validation, what is refused, and the AMD GPUs that a row counts as verified on."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from release_factory import plain_row
from validations import CASES, DROPPED, H200, LATER, MI300X, TIME, amd_validation, nvidia_validation
from wheelfactory.core.errors import InputError
from wheelfactory.gpu.validate.report import (
    Hardware,
    ResultError,
    ValidatedPackage,
    Validation,
    ValidationCase,
    ValidationCheck,
)
from wheelfactory.release.evidence import Evidence, NearestResult, as_evidence, merge_evidence
from wheelfactory.release.manifest import WheelRow, verified_archs
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
