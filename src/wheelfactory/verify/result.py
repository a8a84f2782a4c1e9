"""What a gate may say of a wheel; part of the manifest, so it is light to import."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict


class Status(str, Enum):
    """How a gate ended; not run is never passed."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"

    def __str__(self) -> str:
        return self.value


class Finding(BaseModel):
    """One thing wrong: where, what was expected, what was found, and the cure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    expected: str
    found: str
    cure: str

    def __str__(self) -> str:
        return f"{self.file}: expected {self.expected}, found {self.found} ({self.cure})"


class GateResult(BaseModel):
    """What one gate says of one wheel; `detail` names the versions it ran with or why it did not run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str
    status: Status
    detail: str = ""
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, gate: str, findings: list[Finding], detail: str = "") -> GateResult:
        """Failed if there are findings, passed if there are none."""
        status = Status.FAILED if findings else Status.PASSED
        return cls(gate=gate, status=status, detail=detail, findings=tuple(findings))
