"""What a gate may say of a wheel, and of a number; part of the manifest, so it is light to import."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum

from pydantic import Field

from wheelfactory.core.models import FrozenModel


class Status(str, Enum):
    """How a gate ended; not run is never passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"

    def __str__(self) -> str:
        return self.value


class Finding(FrozenModel):
    """One thing wrong: where, what was expected, what was found, and the cure."""

    file: str
    expected: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}: expected {self.expected}, found {self.found} ({self.remedy})"


class GateResult(FrozenModel, allow_inf_nan=False):
    """What one gate says of one wheel; `detail` is for a person, or says why it did not run.

    `versions` names what it ran with, `figures` what it measured; neither holds anything that differs between two
    runs on equal wheels, since the manifest keeps them.
    """

    gate: str
    status: Status
    required: bool = True
    """Whether a wheel is published only if this gate passed."""
    detail: str = ""
    findings: tuple[Finding, ...] = ()
    versions: dict[str, str] = Field({})
    figures: dict[str, float] = Field({})

    @classmethod
    def from_findings(
        cls,
        gate: str,
        findings: Sequence[Finding],
        detail: str = "",
        *,
        versions: Mapping[str, str] | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> GateResult:
        """Failed if there are findings, passed if there are none."""
        return cls(
            gate=gate,
            status=Status.FAILED if findings else Status.PASSED,
            detail=detail,
            findings=tuple(findings),
            versions=dict(versions or {}),
            figures=dict(figures or {}),
        )

    @classmethod
    def not_run(cls, gate: str, reason: str) -> GateResult:
        """Neither passed nor failed, with the reason."""
        return cls(gate=gate, status=Status.NOT_RUN, detail=reason)


def is_within(error: float, bound: float) -> bool:
    """Whether a result is near enough. NaN, infinite and negative numbers, which files may hold, are not."""
    return 0 <= error <= bound < math.inf
