"""Archived reports of trainings in, how each implementation went from one to the next out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from wheelfactory.gpu.bench.compare import require_comparable
from wheelfactory.gpu.bench.reports import TrainingReport


@dataclass(frozen=True)
class Point:
    """One implementation in one report."""

    time: datetime
    torch: str
    implementation: str
    version: str | None
    """Of the implementation."""
    step_ms: float
    tokens_per_s: float | None
    peak_mib: float | None
    percent: float | None
    """What the step takes more than at the point before; None for the first."""


def trend(reports: Mapping[str, TrainingReport]) -> tuple[Point, ...]:
    """The points of every implementation that was measured, by time. The reports are named as messages name them.

    Raises `InputError` unless all are of one configuration and one hardware.
    """
    ordered = sorted(reports.items(), key=lambda item: item[1].time)
    newest = ordered[-1][1]
    for name, report in islice(ordered, len(ordered) - 1):
        require_comparable(name, report, newest.config, newest.hardware)
    points: list[Point] = []
    last: dict[str, float] = {}
    for _, report in ordered:
        for result in report.results:
            if result.median_step_ms is None:
                continue
            name, step = result.implementation.name, result.median_step_ms
            percent = (step - last[name]) / last[name] * 100 if name in last else None
            last[name] = step
            points.append(
                Point(
                    time=report.time,
                    torch=report.software.torch,
                    implementation=name,
                    version=result.implementation.version,
                    step_ms=step,
                    tokens_per_s=result.tokens_per_s,
                    peak_mib=result.peak_mib,
                    percent=percent,
                )
            )
    return tuple(points)
