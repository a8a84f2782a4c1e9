"""The rule for numbers: an error within the bound of its dtype passes, any other error is a finding.

Unsupported cases are skipped only for the release, Triton and arch concerned.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import numeric_reports
from wheel_factory import TRITON as TRITON_CELL
from wheel_factory import build_record, finished_wheel
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.core.host import Host
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix
from wheelfactory.verify.accuracy import (
    FALLBACK_TOLERANCE,
    LIMITS,
    TOLERANCES,
    NumericReport,
    Tolerance,
    find_cell_limits,
    find_numeric_faults,
    refusals,
    worst_errors,
)
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.result import Finding
from wheelfactory.wheel.read import Wheel

CK, TRITON = TOLERANCES[Backend.CK], TOLERANCES[Backend.TRITON]
WHEEL = "flash_attn-2.8.3+rocm72torch2.13triton-py3-none-any.whl"


def numbers(standard: Tolerance = TRITON, error: str | None = None, /, **errors: tuple[float, float]) -> NumericReport:
    """What one case gave; by default output and gradients as far off as rounding alone is."""
    errors = errors or dict.fromkeys(("output", "dq", "dk", "dv"), (0.001, 0.001))
    return numeric_reports.numbers(standard, numeric_reports.case("causal float16", error, **errors))


def faults(answer: NumericReport | str, standard: Tolerance = TRITON) -> list[Finding]:
    return list(find_numeric_faults(WHEEL, standard, answer, "on gfx942"))


BOUNDS: list[tuple[Tolerance, str, float, bool]] = [
    (TRITON, "output", 2.0, True),  # Triton output at the bound
    (TRITON, "output", 2.1, False),  # Triton output above it
    (TRITON, "dk", 3.0, True),  # Triton gradient at the bound
    (TRITON, "dk", 3.1, False),  # Triton gradient above it
    (CK, "output", 4.0, True),  # CK output at the bound
    (CK, "output", 4.1, False),  # CK output above it
    (CK, "dq", 10.0, True),  # CK gradient at the bound
    (CK, "dq", 10.1, False),  # CK gradient above it
    (FALLBACK_TOLERANCE, "output", 2.1, False),  # fallback output above it
    (FALLBACK_TOLERANCE, "dv", 3.0, True),  # fallback gradient at the bound
    (TRITON, "dv", math.nan, False),  # no number
    (TRITON, "dv", math.inf, False),  # infinite
    (TRITON, "dv", -1.0, False),  # negative
]


def test_the_bound_is_a_multiple_of_the_rounding_error() -> None:
    for standard, result, times, right in BOUNDS:
        found = faults(numbers(standard, **{result: (times * 0.25, 0.25)}), standard)
        assert (found == []) is right


OPTIONS: list[tuple[str, str | None, str | None]] = [
    ("", None, None),  # no option, computed
    ("", "ignores it", "ignores it"),  # no option, refused
    ("softcap", "ignores it", None),  # to be refused, refused
    ("softcap", None, "computed, but softcap is refused by options.yaml"),  # to be refused, computed
    ("rotary_cos", "ignores it", "ignores it"),  # to be computed, refused
    ("rotary_cos", None, None),  # to be computed, computed
]


def test_an_option_is_computed_or_refused_as_the_table_says() -> None:
    for option, refused, found in OPTIONS:
        case = numbers().cases[0].model_copy(update={"option": option, "refused": refused})
        assert case.error(["softcap"]) == found
        assert [*refusals([case, case])] == ([f"raises an error for {option}"] if refused else [])


REFUSED: list[tuple[NumericReport | str, Tolerance, str, str]] = [
    (numbers(TRITON, "no kernel", output=(0.0, 1.0)), TRITON, "causal float16 to run on gfx942", "no kernel"),
    (numbers().model_copy(update={"cases": ()}), TRITON, "attention to run on gfx942", "no case"),
    ("killed by SIGSEGV", TRITON, "attention to run on gfx942", "killed by SIGSEGV"),
    (numbers(CK), TRITON, "calls of flash_attn.flash_attn_triton_amd.interface_fa", "flash_attn_2_cuda"),
    (
        numbers(CK).model_copy(update={"from_wheel": False}),
        *(CK, "flash_attn_2_cuda from the wheel", "a different copy installed in this Python"),
    ),
]
"""A case that raised, no case, no report, the calls of another backend, the backend of another installation."""


def test_what_proves_nothing_is_a_finding() -> None:
    for answer, standard, expected, found in REFUSED:
        (finding,) = faults(answer, standard)
        assert (finding.expected, finding.found) == (expected, found)
        assert finding.remedy
    assert faults("killed by SIGSEGV")[0].remedy.startswith("run the gate again")


def test_an_infinite_bound_of_a_reference_beyond_its_dtype_is_never_met() -> None:
    for bound in (math.inf, math.nan):
        (finding,) = faults(numbers(output=(0.0, bound)))
        assert finding.expected.startswith(f"output of causal float16 with an error of at most {bound}")


def test_the_figures_are_of_the_result_nearest_to_its_bound() -> None:
    found = numbers(output=(0.0010512, 0.001), dq=(0.0012, 0.001), dk=(0.002, 0.01))
    assert worst_errors(found, TRITON) == {"causal float16 error": 0.0011, "causal float16 bound": 0.002}


@pytest.mark.parametrize("answer", ["it hung", numbers(output=(math.nan, 0.001)), numbers(TRITON, "no", output=(1, 0))])
def test_only_finite_numbers_are_figures(answer: NumericReport | str) -> None:
    """The manifest is JSON, which has none for it."""
    assert worst_errors(answer, TRITON) == {}


GROUPED, LDS, BF16 = LIMITS


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A wheel with the real matrix; tests replace its cell."""
    folder = tmp_path_factory.mktemp("wheel")
    given = Context(load_matrix(MATRIX), Host(cores=1, memory_gib=1), {}, folder)
    return Subject(
        Wheel.open(finished_wheel(folder, TRITON_CELL)), given, record=build_record(TRITON_CELL), cell=TRITON_CELL
    )


def of(subject: Subject, cell: str, arch: str | None = None) -> tuple[object, ...]:
    return find_cell_limits(replace(subject, cell=Cell.parse(cell)), arch)


LIMITED: list[tuple[str, str | None, tuple[object, ...]]] = [
    ("fa2.7.4.post1-rocm7.2-torch2.13.0-py3-triton", None, (GROUPED,)),  # 2.7.4
    ("fa2.7.4.post1-rocm7.2-torch2.13.0-py3-triton", "gfx1030", (GROUPED,)),  # 2.7.4 on gfx1030
    ("fa2.8.3-rocm7.2-torch2.13.0-py3-triton", "gfx1030", (LDS,)),  # 2.8.3 on gfx1030
    ("fa2.8.3.post2-rocm7.2-torch2.13.0-py3-triton", "gfx1030", (LDS,)),  # 2.8.3.post2 on gfx1030
    ("fa2.8.3-rocm6.4-torch2.8.0-py3-triton", "gfx1030", (LDS,)),  # with Triton 3.4.0
    ("fa2.8.3-rocm6.3-torch2.7.1-py3-triton", "gfx1030", ()),  # with Triton 3.3.1
    ("fa2.7.4.post1-rocm6.1-torch2.5.1-py3-triton", "gfx1030", (GROUPED, BF16)),  # with Triton 3.1.0
    ("fa2.7.4.post1-rocm6.1-torch2.6.0-py3-triton", "gfx1030", (GROUPED,)),  # with Triton 3.2.0
    ("fa2.8.3-rocm7.2-torch2.13.0-py3-triton", "gfx1100", ()),  # 2.8.3 on gfx1100
    ("fa2.8.3-rocm7.2-torch2.13.0-py3-triton", None, ()),  # 2.8.3 on no GPU
    ("fa2.7.4.post1-rocm7.2-torch2.13.0-cp311-ck", None, ()),  # the other backend
]


def test_a_limit_is_one_of_release_triton_and_arch(subject: Subject) -> None:
    for cell, arch, limits in LIMITED:
        assert of(subject, cell, arch) == limits


def test_limits_become_program_arguments() -> None:
    assert [limit.argument for limit in LIMITS] == ["grouped*", "*causal bfloat16", "!*bfloat16"]
