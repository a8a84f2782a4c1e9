"""Text about the GPUs that ran a wheel: verified on AMD GPUs, only computed on others."""

from __future__ import annotations

from pathlib import Path

import pytest

from release_factory import quick_gates
from report_rows import rows_of
from validations import LATER, amd_validation, nvidia_validation, with_evidence
from wheel_factory import MATRIX, second_build
from wheelfactory.gpu.validation_report import ValidatedPackage
from wheelfactory.release.manifest import WheelRow
from wheelfactory.site.wheel_text import evidence_lines, status_notes
from wheelfactory.verify.result import GateResult

TRITON = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
GATE = GateResult.from_findings("gpu", [], versions={"gpu": "gfx90a", "torch": "2.9.1+rocm6.4"})
FALLBACK = ValidatedPackage(project="flash-attention-amd", version="0.1.0", sha256="7" * 64)


@pytest.fixture
def row(tmp_path: Path) -> WheelRow:
    (made,) = rows_of(tmp_path, [TRITON])
    return made


def test_only_a_wheel_of_an_earlier_build_or_with_gpu_runs_has_notes(row: WheelRow) -> None:
    assert [*status_notes(row, MATRIX), *evidence_lines(row)] == []
    assert list(status_notes(row, second_build(MATRIX))) == ["checked before these cases existed: wrong numbers"]


def test_gpus_of_amd_verify_their_archs(row: WheelRow) -> None:
    ran = with_evidence(row.model_copy(update={"gates": (*row.gates, GATE)}), amd_validation())
    assert list(status_notes(ran, MATRIX)) == ["verified on gfx90a, gfx942"]
    assert list(evidence_lines(ran)) == [
        "verified on gfx90a, torch 2.9.1+rocm6.4: by the gpu gate, before publishing",
        "verified on gfx942 (AMD Instinct MI300X), torch 2.9.1+rocm6.4, 2026-11-22: 2 cases passed, 1 not run; "
        "nearest to its bound dq of fp16 d64 causal, 0.003 of 0.004",
    ]


@pytest.mark.parametrize("executed", [412, 0])
def test_kernels_that_an_emulator_executed_did_not_run_on_a_gpu(row: WheelRow, executed: int) -> None:
    figures = {"gfx942 executed": executed, "gfx942 kernels": 2887, "gfx90a bytes": 9, "gfx1 executed": 1}
    gate = GateResult.from_findings("code-objects", [], figures=figures)
    ran = row.model_copy(update={"gates": (*row.gates, gate)})
    line = f"{executed} of 2887 kernels executed by an emulator, for gfx942"
    assert list(status_notes(ran, MATRIX)) == ([line] if executed else []), "none executed is no merit"
    assert list(evidence_lines(ran)) == []


def test_missing_checks_come_first_and_the_wheel_is_not_called_verified(row: WheelRow) -> None:
    ran = with_evidence(row.model_copy(update={"gates": (*quick_gates(TRITON), GATE)}), amd_validation())
    assert list(status_notes(ran, MATRIX)) == ["not checked: numbers", "tested on gfx90a, gfx942"]
    assert "verified" not in " ".join(evidence_lines(ran))
    older = row.model_copy(update={"gates": tuple(gate for gate in row.gates if gate.gate != "emulation")})
    found = list(status_notes(with_evidence(older, amd_validation()), MATRIX))
    assert found == ["added later: numbers", "tested on gfx942"]


def test_results_of_other_gpus_are_no_proof_in_the_test_mode_or_of_the_fallback(row: WheelRow) -> None:
    mode = "numbers computed on NVIDIA H200 in the non-AMD GPU test mode"
    fallback = nvidia_validation(dropped_launch_options=None, validated=FALLBACK)
    for validation, note in ((nvidia_validation(time=LATER), mode), (fallback, "numbers computed on NVIDIA H200")):
        ran = with_evidence(row, validation)
        assert list(status_notes(ran, MATRIX)) == [note]
        (line,) = evidence_lines(ran)
        assert line.startswith(f"{note}, torch 2.11.0+cu130, 2026-11-2")
        assert line.endswith("; this proves nothing about AMD GPUs")
