"""Computed results as cases: the bounds are those of the gates, and omitted cases have a reason."""

from __future__ import annotations

import math
from collections.abc import Sequence

from numeric_reports import case, numbers
from wheelfactory.core.cell import Backend
from wheelfactory.gpu.validate.checks import as_cases
from wheelfactory.gpu.validate.report import ResultError, ValidationCase
from wheelfactory.verify import accuracy as rule
from wheelfactory.verify.limits import KnownLimit
from wheelfactory.verify.result import Status

GROUPED = KnownLimit("grouped*", flash_attn=">=2", reason="backward with grouped heads")
CACHED = KnownLimit("cached*", flash_attn=">=2", reason="a cache", skip_forward=True)


def only(
    found: rule.NumericCase, backend: Backend = Backend.TRITON, limits: Sequence[KnownLimit] = ()
) -> ValidationCase:
    (made,) = as_cases(numbers(backend, found), limits, None)
    return made


def test_each_result_has_its_error_and_the_bound_of_the_backend() -> None:
    made = only(case(output=(0.001, 0.002), dv=(0.003, 0.004)))
    assert made == ValidationCase(
        name="causal float16",
        status=Status.PASSED,
        errors=(
            ResultError(result="output", error=0.001, bound=0.004),
            ResultError(result="dv", error=0.003, bound=0.012),
        ),
    )
    ck = only(case(output=(0.001, 0.002), dv=(0.003, 0.004)), Backend.CK)
    assert [error.bound for error in ck.errors] == [0.008, 0.04]


def test_results_that_are_not_finite_fail_with_a_reason() -> None:
    """JSON has no NaN."""
    made = only(case(output=(0.001, 0.001), dq=(math.nan, 0.001)))
    assert made.status is Status.FAILED
    assert [error.result for error in made.errors] == ["output"]
    assert made.detail == "dq is off by nan (at most 0.003)"


def test_a_case_without_a_result_has_failed_with_its_words() -> None:
    for words in ("OutOfResources: shared memory", None):
        made = only(rule.NumericCase(name="wide float16", errors={}, exception=words))
        assert (made.status, made.detail) == (Status.FAILED, words or "")


def test_an_unknown_module_has_no_bound() -> None:
    (made,) = as_cases(numbers(backend="some.module"), (), None)
    assert (made.status, made.detail) == (Status.FAILED, "no bound is known for some.module")


def test_cases_excluded_by_a_limit_are_not_run_with_its_reason() -> None:
    found = numbers(Backend.TRITON, case(), left_out=("cached full float16",))
    made = list(as_cases(found, (GROUPED, CACHED), None))
    assert [(one.name, one.status) for one in made] == [
        ("causal float16", Status.PASSED),
        ("cached full float16", Status.NOT_RUN),
    ]
    assert made[1].detail == "skipped: a cache"


def test_a_case_without_a_backward_pass_has_the_reason() -> None:
    made = only(case("grouped causal float16", output=(0.001, 0.001)), limits=(GROUPED, CACHED))
    assert (made.status, made.detail) == (Status.PASSED, "skipped: backward with grouped heads")
