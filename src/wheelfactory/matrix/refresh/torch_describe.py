"""What a refresh found -> lines for the person who reviews the edit."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfactory.matrix.refresh.torch_support import Findings


def lines_of(findings: Findings) -> Iterator[str]:
    """A line for each release that was added, then one for each thing that only a person can do."""
    for entry, torch in findings.additions:
        yield f"added      to ROCm {entry}: torch {torch}"
    for suggestion in findings.suggestions:
        yield f"suggested  for ROCm {suggestion.rocm}: torch {suggestion.torch}: {suggestion.reason}"


def summary_of(findings: Findings) -> str:
    """All of it in one line."""
    return (
        f"{findings.indexes} indexes: {len(findings.additions)} torch releases added, "
        f"{len(findings.suggestions)} suggestions; {findings.new_cells} new cells besides {findings.cells}"
    )
