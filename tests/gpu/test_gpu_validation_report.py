"""The report of a validation: as a file it reads back and matches its schema, and its text has an accurate verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator

from validations import CASES, DROPPED, H200, SHA256, amd_validation, nvidia_validation, write_validation
from wheelfactory.core.errors import InputError
from wheelfactory.gpu.validation_report import (
    VALIDATION_FORMAT,
    Hardware,
    ValidatedPackage,
    Validation,
    ValidationCase,
    ValidationCheck,
    read_validation,
    validation_lines,
    verdict,
)
from wheelfactory.verify.result import Status

SCHEMA = OAS31Validator(Validation.model_json_schema())
"""The dialect: JSON Schema 2020-12, as in OpenAPI 3.1."""


def values(**changed: object) -> dict[str, Any]:
    """A report as JSON has it, some of its values changed to what one need not take."""
    return {**amd_validation().model_dump(mode="json"), **changed}


@pytest.mark.parametrize("report", [amd_validation(), nvidia_validation()], ids=["on AMD", "non-AMD GPU"])
def test_a_report_reads_back_as_it_was_written_and_keeps_its_schema(tmp_path: Path, report: Validation) -> None:
    SCHEMA.validate(json.loads(report.model_dump_json()))
    assert read_validation(write_validation(tmp_path / "report.json", report)) == report


DAMAGE: list[tuple[object, str]] = [
    (values(flavour="spicy"), "flavour: Extra inputs are not permitted"),  # unknown key
    (values(cases=[{"name": "a", "status": "fine"}]), "cases.0.status: "),  # status of its own
    (values(hardware={"vendor": "intel"}), "hardware.vendor: "),  # vendor of its own
    (values(symbols={"a": "often"}), "symbols.a: "),  # no count
    ({"format": VALIDATION_FORMAT}, "factory: Field required"),  # no other field
    (values(format="wheelfactory-validation/2"), "format: Input should be 'wheelfactory-validation/1'"),
]


def test_a_damaged_report_is_refused_with_its_place(tmp_path: Path) -> None:
    for damaged, place in DAMAGE:
        path = tmp_path / "report.json"
        path.write_text(json.dumps(damaged))
        with pytest.raises(InputError, match="not a validation report") as refused:
            read_validation(path)
        assert refused.value.which.startswith(f"{path}: {place}")
        assert "validate WHEEL --json" in refused.value.hint
        assert not SCHEMA.is_valid(damaged)
    for text in (json.dumps(values(time="2026-11-22T09:30:00")), "[" * 100_000):  # without a zone
        path.write_text(text)
        with pytest.raises(InputError, match="not a validation report"):
            read_validation(path)


def test_an_unreadable_report_is_refused(tmp_path: Path) -> None:
    for name, why in (("absent.json", "No such file or directory"), (".", "Is a directory")):
        with pytest.raises(InputError, match="cannot read the report") as refused:
            read_validation(tmp_path / name)
        assert why in refused.value.which


WRONG = ValidationCase(name="wide float16", status=Status.FAILED, detail="RuntimeError: no kernel")
MISFIT = ValidationCheck(name="arch", status=Status.FAILED, detail="gfx1036; supported: gfx942")


def lines(**changes: Any) -> list[str]:
    return list(validation_lines(amd_validation(None, **changes)))


def test_the_report_names_package_hardware_and_software() -> None:
    validated = ValidatedPackage(
        project="flash-attn",
        version="2.8.3+rocm64torch2.9triton",
        filename="flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl",
        sha256=SHA256,
        cell="fa2.8.3-rocm6.4-torch2.9.1-py3-triton",
        label="rocm64torch2.9triton",
        offload_archs=("gfx90a", "gfx942"),
    )
    assert lines(validated=validated)[:9] == [
        "flash-attn 2.8.3+rocm64torch2.9triton",
        "  wheel     flash_attn-2.8.3+rocm64torch2.9triton-py3-none-any.whl",
        f"  sha256    {SHA256}",
        "  cell      fa2.8.3-rocm6.4-torch2.9.1-py3-triton",
        "  label     ROCm 6.4, torch 2.9, Triton",
        "  archs     gfx90a, gfx942",
        "  hardware  AMD Instinct MI300X (gfx942)",
        "  software  Python 3.12, torch 2.9.1+rocm6.4, HIP 6.4.43482, Triton 3.5.1",
        "  called    flash_attn.flash_attn_triton_amd.interface_fa.bwd, 12 times",
    ]


def test_each_case_has_its_errors_and_bounds_and_each_check_its_detail() -> None:
    assert lines(cases=(*CASES, WRONG), checks=(ValidationCheck(name="backend", status=Status.PASSED), MISFIT))[
        -7:-1
    ] == [
        "  passed    backend",
        "  failed    arch (gfx1036; supported: gfx942)",
        "  passed    fp16 d64 causal  output 1.0e-03 of 8.0e-03, dq 3.0e-03 of 4.0e-03",
        "  passed    bf16 d128        output 1.0e-02 of 6.0e-02, dk 2.0e-02 of 5.0e-02",
        "  not run   bf16 d256        does not fit the memory of this arch",
        "  failed    wide float16     RuntimeError: no kernel",
    ]


def test_the_test_mode_shows_the_dropped_options() -> None:
    mode = "  mode      non-AMD GPU; dropped at launch: "
    assert f"{mode}matrix_instr_nonkdim, waves_per_eu" in validation_lines(nvidia_validation())
    assert f"{mode}nothing" in validation_lines(nvidia_validation(dropped_launch_options=()))
    assert not [line for line in lines() if line.startswith("  mode")]


def test_the_verdict_follows_from_the_checks_and_cases() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cases": CASES[:2]}, "validated on AMD Instinct MI300X (gfx942)"),
        ({}, "validated on AMD Instinct MI300X (gfx942); 1 of 3 cases not run"),
        (
            {"hardware": H200, "dropped_launch_options": DROPPED, "cases": CASES[:1]},
            "computed on NVIDIA H200 (sm_90) in the non-AMD GPU test mode: this proves nothing about AMD GPUs",
        ),
        ({"hardware": H200, "cases": CASES[:1]}, "validated on NVIDIA H200 (sm_90)"),
        ({"hardware": Hardware(), "cases": CASES[:1]}, "no failure, but nothing was computed on a GPU"),
        ({"hardware": Hardware(), "cases": ()}, "no failure, but nothing was computed on a GPU"),
        ({"cases": (*CASES, WRONG)}, "refused: 1 of 4 cases failed"),
        ({"checks": (MISFIT,)}, "refused: 1 of 1 checks failed"),
        ({"checks": (MISFIT,), "cases": (WRONG,)}, "refused: 1 of 1 checks and 1 of 1 cases failed"),
        ({"hardware": H200, "dropped_launch_options": DROPPED, "cases": (WRONG,)}, "refused: 1 of 1 cases failed"),
    ]
    for changes, expected in cases:
        report = amd_validation(None, **changes)
        assert verdict(report) == expected
        assert list(validation_lines(report))[-1] == expected
        assert report.failed is expected.startswith("refused")
