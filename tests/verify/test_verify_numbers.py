"""The rule for numbers: an error within the bound of its dtype passes, anything else is a finding."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from wheel_factory import CK, TRITON, build_record, finished_wheel, small_workshop
from wheelfactory.cell import Cell
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.numbers import Case, Numbers, figures, find_faults
from wheelfactory.verify.result import Finding
from wheelfactory.wheel.read import Wheel

MODULES = {CK: "flash_attn_2_cuda", TRITON: "flash_attn.flash_attn_triton_amd.interface_fa"}


def numbers(cell: Cell = TRITON, error: str | None = None, /, **errors: tuple[float, float]) -> Numbers:
    """What one case gave; by default output and gradients as far off as rounding alone is."""
    errors = errors or dict.fromkeys(("output", "dq", "dk", "dv"), (0.001, 0.001))
    case = Case(name="causal float16", errors=errors, error=error)
    torch = {"torch": "2.13.0", "triton": "3.7.1", "gpu": None}
    return Numbers(**torch, backend=MODULES[cell], installed=True, cases=(case,))


def faults(folder: Path, answer: Numbers | str, cell: Cell = TRITON) -> list[Finding]:
    subject = Subject(Wheel.open(finished_wheel(folder, cell)), build_record(cell), cell, small_workshop(folder))
    return list(find_faults(subject, answer, "on gfx942"))


def test_errors_of_the_size_that_rounding_makes_are_right(tmp_path: Path) -> None:
    assert faults(tmp_path, numbers()) == []


@pytest.mark.parametrize(
    ("cell", "result", "times", "right"),
    [
        pytest.param(TRITON, "output", 2.0, True, id="Triton output at the bound"),
        pytest.param(TRITON, "output", 2.1, False, id="Triton output above it"),
        pytest.param(TRITON, "dk", 3.0, True, id="Triton gradient at the bound"),
        pytest.param(TRITON, "dk", 3.1, False, id="Triton gradient above it"),
        pytest.param(CK, "output", 4.0, True, id="CK output at the bound"),
        pytest.param(CK, "output", 4.1, False, id="CK output above it"),
        pytest.param(CK, "dq", 10.0, True, id="CK gradient at the bound"),
        pytest.param(CK, "dq", 10.1, False, id="CK gradient above it"),
        pytest.param(TRITON, "dv", math.nan, False, id="no number"),
        pytest.param(TRITON, "dv", math.inf, False, id="infinite"),
    ],
)
def test_the_bound_is_a_multiple_of_what_rounding_makes(
    tmp_path: Path, cell: Cell, result: str, times: float, right: bool
) -> None:
    found = faults(tmp_path, numbers(cell, **{result: (times * 0.25, 0.25)}), cell)
    assert (found == []) is right


def test_a_wrong_number_is_a_finding_with_its_bound(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, numbers(dq=(0.12345, 0.001)))

    assert finding.file == "flash_attn-2.8.3+rocm72torch2.13triton-py3-none-any.whl"
    assert finding.expected == "dq of causal float16 to be off by 0.003 at most on gfx942"
    assert finding.found == "0.12"
    assert "take the combination out of the matrix" in finding.cure


def test_a_case_that_raised_is_a_finding(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, numbers(TRITON, "ValueError: no kernel", output=(0.0, 1.0)))
    assert (finding.expected, finding.found) == ("causal float16 to run on gfx942", "ValueError: no kernel")


def test_a_report_of_nothing_is_a_finding(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, numbers().model_copy(update={"cases": ()}))
    assert (finding.expected, finding.found) == ("attention to run on gfx942", "no case")


def test_no_report_is_a_finding_with_the_reason(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, "killed by SIGSEGV; causal float16")
    assert (finding.expected, finding.found) == ("attention to run on gfx942", "killed by SIGSEGV; causal float16")
    assert finding.cure.startswith("run the gate again")


def test_a_wheel_that_calls_another_backend_is_refused(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, numbers(CK), TRITON)
    assert finding.expected == "calls of flash_attn.flash_attn_triton_amd.interface_fa"
    assert finding.found == "flash_attn_2_cuda"


def test_the_backend_of_another_installation_proves_nothing(tmp_path: Path) -> None:
    (finding,) = faults(tmp_path, numbers(CK).model_copy(update={"installed": False}), CK)
    assert (finding.expected, finding.found) == ("flash_attn_2_cuda of the wheel", "another flash-attn of this Python")


def test_the_figures_are_of_the_result_nearest_to_its_bound() -> None:
    found = numbers(output=(0.0010512, 0.001), dq=(0.0012, 0.001), dk=(0.002, 0.01))
    assert figures(found, TRITON.backend) == {"causal float16 error": 0.0011, "causal float16 bound": 0.002}


@pytest.mark.parametrize("answer", ["it hung", numbers(output=(math.nan, 0.001)), numbers(TRITON, "no", output=(1, 0))])
def test_what_is_no_number_is_no_figure(answer: Numbers | str) -> None:
    """The manifest is JSON, which has none for it."""
    assert figures(answer, TRITON.backend) == {}
