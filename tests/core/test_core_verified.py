"""The rule that says whether a wheel is verified: every required gate passed, and none failed."""

from __future__ import annotations

import pytest

from wheelfactory.core.verified import why_unverified

REQUIRED = ("archive", "import", "ahead-of-time", "interpreter")
PASSED = tuple((name, "passed") for name in REQUIRED)


@pytest.mark.parametrize("more", [(), (("gpu", "not run"),), (("gpu", "passed"),)])
def test_a_wheel_that_passed_every_required_gate_is_verified(more: tuple[tuple[str, str], ...]) -> None:
    assert why_unverified(REQUIRED, (*PASSED, *more)) == ""


@pytest.mark.parametrize(
    ("results", "said"),
    [
        pytest.param(
            (*PASSED[:2], ("ahead-of-time", "not run"), ("interpreter", "not run")),
            "not checked: kernels compiled for its GPUs, numbers",
            id="--quick",
        ),
        pytest.param(PASSED[:2], "not checked: kernels compiled for its GPUs, numbers", id="an older factory"),
        pytest.param(PASSED[1:], "not checked: archive", id="one without words of its own"),
        pytest.param((*PASSED, ("gpu", "failed")), "failed: gpu", id="one that is not required failed"),
        pytest.param((*PASSED[:3], ("interpreter", "failed")), "failed: numbers", id="one failed"),
        pytest.param((*PASSED[:3], ("interpreter", "pasted")), "not checked: numbers", id="no known end"),
        pytest.param(
            (("archive", "failed"),),
            "failed: archive; not checked: import, kernels compiled for its GPUs, numbers",
            id="one failed and the others did not run",
        ),
    ],
)
def test_what_is_missing_is_said_in_plain_words(results: tuple[tuple[str, str], ...], said: str) -> None:
    assert why_unverified(REQUIRED, results) == said
