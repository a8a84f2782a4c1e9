"""The text of a validation: hardware, software, every case with error and bound, and an accurate verdict."""

from __future__ import annotations

from typing import Any

from validations import CASES, DROPPED, H200, SHA256, amd_validation, nvidia_validation
from wheelfactory.gpu.validate.report import Hardware, ValidatedPackage, ValidationCase, ValidationCheck
from wheelfactory.gpu.validate.validation_text import validation_lines, verdict
from wheelfactory.verify.result import Status

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
