"""Reports of a training beside each other: what became worse from one to another, and how an archive of them went."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from wheelfactory.core.errors import InputError
from wheelfactory.core.models import FrozenModel
from wheelfactory.gpu.bench.reports import TrainingConfig, TrainingReport, TrainingResult
from wheelfactory.gpu.validate.report import Hardware

LOWER_IS_BETTER = {"median_step_ms": True, "tokens_per_s": False, "peak_mib": True}
"""The figures that are compared, and whether the lesser is the better."""

LOSS_BOUNDS = {"loss_first": 0.01, "loss_last": 0.1}
"""What losses, in nats, may differ by. Both begin with the same weights and data, so the first differs by the rounding
of bfloat16 (2**-8 of a score of a token, less in the mean over thousands); the last by what many steps make of that."""


@dataclass(frozen=True)
class FigureChange:
    """One figure of one implementation, before and now."""

    implementation: str
    figure: str
    """A field of `TrainingResult`: of `LOWER_IS_BETTER`, of `LOSS_BOUNDS`, or ``status``."""
    before: float | str
    now: float | str
    percent: float | None
    """What is added to the figure before; None for a loss and a status."""
    is_worse: bool


@dataclass(frozen=True)
class TrendPoint:
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


def require_comparable(name: str, old: TrainingReport, config: TrainingConfig, hardware: Hardware) -> None:
    """Raises `InputError` unless the report `name` is of this configuration and this hardware."""
    pairs: tuple[tuple[FrozenModel, FrozenModel], ...] = ((old.config, config), (old.hardware, hardware))
    found = [
        f"{field} {getattr(there, field)} there, {getattr(here, field)} here"
        for there, here in pairs
        for field in type(there).model_fields
        if getattr(there, field) != getattr(here, field)
    ]
    if found:
        raise InputError(
            "these trainings cannot be compared",
            f"{name}: {'; '.join(found)}",
            "compare reports of the same sizes, options and GPU",
        )


def require_common_implementation(old: TrainingReport, implementations: Collection[str]) -> None:
    """Raises `InputError` if the old report measured none of these."""
    measured = [result.implementation.name for result in old.results if result.status == "measured"]
    if not set(measured) & set(implementations):
        raise InputError(
            "nothing to compare",
            f"measured there: {', '.join(measured) or 'nothing'}",
            "train with one of those: --implementations",
        )


def compare_training(old: TrainingReport, new: TrainingReport, threshold: float) -> tuple[FigureChange, ...]:
    """What became of each implementation that both reports name and the old one measured.

    Worse is a figure by more than `threshold` percent, a loss off by more than its bound, or what no longer runs."""
    before = {result.implementation.name: result for result in old.results if result.status == "measured"}
    pairs = [(before[name], now) for now in new.results if (name := now.implementation.name) in before]
    return tuple(change for pair in pairs for change in _changes(*pair, threshold))


def _changes(old: TrainingResult, new: TrainingResult, threshold: float) -> Iterator[FigureChange]:
    name = new.implementation.name
    if new.status != "measured":
        yield FigureChange(name, "status", old.status, new.status, None, is_worse=True)
        return
    for figure, less_is_better in LOWER_IS_BETTER.items():
        before, now = getattr(old, figure), getattr(new, figure)
        if before and now is not None:
            percent = round((now - before) / before * 100, 6)  # 5 % is not more than 5 % for the way floats round
            worse = percent if less_is_better else -percent
            yield FigureChange(name, figure, before, now, percent, is_worse=worse > threshold)
    for figure, bound in LOSS_BOUNDS.items():
        before, now = getattr(old, figure), getattr(new, figure)
        if before is not None and now is not None:
            yield FigureChange(name, figure, before, now, None, is_worse=abs(now - before) > bound)


def trend_points(reports: Mapping[str, TrainingReport]) -> tuple[TrendPoint, ...]:
    """The points of every implementation that was measured, by time. The reports are named as messages name them.

    Raises `InputError` unless all are of one configuration and one hardware.
    """
    ordered = sorted(reports.items(), key=lambda item: item[1].time)
    newest = ordered[-1][1]
    for name, report in ordered[:-1]:
        require_comparable(name, report, newest.config, newest.hardware)
    points: list[TrendPoint] = []
    last: dict[str, float] = {}
    for _, report in ordered:
        for result in report.results:
            if result.median_step_ms is None:
                continue
            name, step = result.implementation.name, result.median_step_ms
            percent = (step - last[name]) / last[name] * 100 if name in last else None
            last[name] = step
            points.append(
                TrendPoint(
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
