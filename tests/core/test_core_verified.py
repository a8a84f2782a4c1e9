"""A wheel is verified if every required gate passed and no gate failed."""

from __future__ import annotations

from wheelfactory.core.verified import why_unverified

REQUIRED = ("archive", "import", "ahead-of-time", "interpreter")
PASSED = tuple((name, "passed") for name in REQUIRED)


def test_a_wheel_that_passed_every_required_gate_is_verified() -> None:
    for more in (
        (),
        (("gpu", "not run"),),
        (("gpu", "passed"),),
    ):
        assert why_unverified(REQUIRED, (*PASSED, *more)) == ""


def test_the_reason_names_failed_and_missing_checks() -> None:
    for results, reason in (
        (
            (*PASSED[:2], ("ahead-of-time", "not run"), ("interpreter", "not run")),
            "not checked: kernels compiled for its GPUs, numbers",
        ),
        (PASSED[:2], "not checked: kernels compiled for its GPUs, numbers"),
        (PASSED[1:], "not checked: archive"),
        ((*PASSED, ("gpu", "failed")), "failed: gpu"),
        ((*PASSED[:3], ("interpreter", "failed")), "failed: numbers"),
        ((*PASSED[:3], ("interpreter", "pasted")), "not checked: numbers"),
        (
            (("archive", "failed"),),
            "failed: archive; not checked: import, kernels compiled for its GPUs, numbers",
        ),
    ):
        assert why_unverified(REQUIRED, results) == reason
