"""Fictitious validation reports: on an AMD GPU, or on an NVIDIA GPU in the test mode."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from wheelfactory.gpu.validation_report import (
    VALIDATION_FORMAT,
    Hardware,
    ResultError,
    Software,
    ValidatedPackage,
    Validation,
    ValidationCase,
    ValidationCheck,
)
from wheelfactory.release.evidence import Evidence, as_evidence, merge_evidence
from wheelfactory.release.manifest import WheelRow
from wheelfactory.verify.result import Status

TIME = datetime(2026, 11, 22, 9, 30, tzinfo=timezone.utc)
LATER = TIME + timedelta(days=2)
MI300X = Hardware(vendor="amd", device="AMD Instinct MI300X", arch="gfx942")
H200 = Hardware(vendor="nvidia", device="NVIDIA H200", arch="sm_90")
DROPPED = ("matrix_instr_nonkdim", "waves_per_eu")
SHA256 = "5" * 64

CASES = (
    ValidationCase(
        name="fp16 d64 causal",
        status=Status.PASSED,
        errors=(
            ResultError(result="output", error=0.001, bound=0.008),
            ResultError(result="dq", error=0.003, bound=0.004),
        ),
    ),
    ValidationCase(
        name="bf16 d128",
        status=Status.PASSED,
        errors=(ResultError(result="output", error=0.01, bound=0.06), ResultError(result="dk", error=0.02, bound=0.05)),
    ),
    ValidationCase(name="bf16 d256", status=Status.NOT_RUN, detail="does not fit the memory of this arch"),
)
"""The result nearest to its bound is dq of the first case, although the second has larger errors."""


def amd_validation(row: WheelRow | None = None, /, **changed: object) -> Validation:
    """Return a successful report on an MI300X for the wheel of a row, with fields `changed`."""
    validated = ValidatedPackage(project="flash-attn", version="2.8.3", label="rocm64torch2.9triton", sha256=SHA256)
    if row:
        fields = {name: getattr(row, name) for name in ("project", "version", "filename", "sha256", "cell", "label")}
        validated = ValidatedPackage(**fields)
    report = Validation(
        format=VALIDATION_FORMAT,
        factory="0.1.0",
        time=TIME,
        validated=validated,
        hardware=MI300X,
        software=Software(python="3.12", torch="2.9.1+rocm6.4", hip="6.4.43482", triton="3.5.1"),
        symbols={
            "flash_attn.flash_attn_triton_amd.interface_fa.fwd": 12,
            "flash_attn.flash_attn_triton_amd.interface_fa.bwd": 12,
        },
        checks=(ValidationCheck(name="backend", status=Status.PASSED),),
        cases=CASES,
    )
    return report.model_copy(update=changed)


def nvidia_validation(row: WheelRow | None = None, /, **changed: object) -> Validation:
    """Return the same report on an H200 in the non-AMD GPU test mode."""
    software = Software(python="3.12", torch="2.11.0+cu130", cuda="13.0", triton="3.6.0")
    mode = {"hardware": H200, "software": software, "dropped_launch_options": DROPPED}
    return amd_validation(row, **{**mode, **changed})


def with_evidence(row: WheelRow, *validations: Validation) -> WheelRow:
    """Return the row with the evidence of these validations."""
    evidence: tuple[Evidence, ...] = ()
    for validation in validations:
        evidence = merge_evidence(*evidence, as_evidence(validation))
    return row.model_copy(update={"evidence": evidence})


def write_validation(path: Path, validation: Validation) -> Path:
    """Write a report to `path`."""
    path.write_text(validation.model_dump_json(), encoding="utf-8")
    return path
