"""The result of a gate: finite figures and short findings."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from wheelfactory.verify.result import GateResult, show_difference


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf])
def test_a_figure_is_a_finite_number(figure: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        GateResult.from_findings("numbers", [], figures={"error": figure})


MANY = [f"gfx{number}" for number in range(900, 925)]


@pytest.mark.parametrize(
    ("expected", "found", "shown"),
    [
        pytest.param(["a", "b"], [], ("a, b", "nothing"), id="short"),
        pytest.param(MANY, [*MANY[1:], "gfx1"], ("25 entries", "missing: gfx900; unexpected: gfx1"), id="long"),
        pytest.param(MANY, MANY[:-1], ("25 entries", "missing: gfx924"), id="one less"),
        pytest.param(MANY, MANY[::-1], ("25 entries", "another order"), id="order"),
    ],
)
def test_of_long_lists_a_finding_shows_the_difference(
    expected: list[str], found: list[str], shown: tuple[str, str]
) -> None:
    assert show_difference(expected, found) == shown
