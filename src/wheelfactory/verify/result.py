"""The results of gates. They are part of the manifest, so this module imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from wheelfactory.core.models import FrozenModel

# entries of a list that a finding shows in full
_MAX_SHOWN = 6
MAX_FINDINGS = 20
"""How many findings a gate shows that can have one for each member, line or symbol of a wheel."""

Text = Annotated[str, AfterValidator(lambda text: text[:_MAX_TEXT])]
"""A text of a finding, which can be a whole file of a hostile wheel: cut."""
_MAX_TEXT = 2000


class Status(str, Enum):
    """The outcome of a gate; a gate that did not run did not pass."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"

    def __str__(self) -> str:
        return self.value


class Finding(FrozenModel):
    """One thing wrong with a wheel: the file, what was expected, what was found, and the remedy."""

    file: Text
    expected: Text
    found: Text
    remedy: Text

    def __init__(self, file: str, expected: str, found: str, remedy: str) -> None:
        """Texts of any length, in this order or by name."""
        super().__init__(file=file, expected=expected, found=found, remedy=remedy)  # type: ignore[call-arg]  # fields of this class

    def __str__(self) -> str:
        return f"{self.file}: expected {self.expected}, found {self.found} ({self.remedy})"


class GateResult(FrozenModel, allow_inf_nan=False):
    """The result of one gate for one wheel.

    `detail` is shown to users; it says why a gate did not run. `versions` are those of the software that ran, `figures`
    are measurements. Both are part of the manifest, so equal wheels must have equal values.
    """

    gate: str
    status: Status
    required: bool = True
    """Whether the wheel must pass this gate before publishing."""
    detail: str = ""
    findings: tuple[Finding, ...] = ()
    versions: dict[str, str] = Field({})
    figures: dict[str, float] = Field({})

    @classmethod
    def from_findings(
        cls,
        gate: str,
        findings: Iterable[Finding],
        detail: str = "",
        *,
        versions: Mapping[str, str] | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> GateResult:
        """Create a result: failed with findings, passed without."""
        kept = tuple(findings)
        return cls(
            gate=gate,
            status=Status.FAILED if kept else Status.PASSED,
            detail=detail,
            findings=kept,
            versions=dict(versions or {}),
            figures=dict(figures or {}),
        )

    @classmethod
    def not_run(cls, gate: str, reason: str) -> GateResult:
        """Create the result of a gate that did not run."""
        return cls(gate=gate, status=Status.NOT_RUN, detail=reason)


def result_lines(results: Iterable[GateResult]) -> Iterator[str]:
    """Format results for people: a line for each, then a line for each of its findings."""
    for result in results:
        yield f"  {result.status!s:<8} {result.gate}" + (f" ({result.detail})" if result.detail else "")
        for finding in result.findings:
            yield f"           {finding}"


def show_difference(expected: Collection[str], found: Collection[str]) -> tuple[str, str]:
    """Format two lists for a finding: in full, or only their difference if they are long (25 archs)."""
    if max(len(expected), len(found)) <= _MAX_SHOWN:
        return join_names(expected), join_names(found)
    parts = {
        "missing": [name for name in expected if name not in found],
        "unexpected": [name for name in found if name not in expected],
    }
    changed = "; ".join(f"{part}: {', '.join(names)}" for part, names in parts.items() if names)
    return f"{len(expected)} entries", changed or "another order"


def join_names(names: Iterable[str]) -> str:
    """Join names by commas; ``nothing`` without names."""
    return ", ".join(names) or "nothing"


def is_within(error: float, bound: float) -> bool:
    """Return whether an error is within its bound; False for NaN, infinite and negative numbers."""
    return 0 <= error <= bound < math.inf
