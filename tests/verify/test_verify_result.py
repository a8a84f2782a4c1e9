"""The result of a gate: what a manifest could not keep is no result."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from wheelfactory.verify.result import GateResult


@pytest.mark.parametrize("figure", [math.nan, math.inf, -math.inf])
def test_a_figure_is_a_finite_number(figure: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        GateResult.from_findings("numbers", [], figures={"error": figure})
