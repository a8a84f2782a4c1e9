"""Compare training reports: regressions between two of them, and the trend over many."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from wheelfactory.core.errors import InputError
from wheelfactory.core.models import FrozenModel
from wheelfactory.gpu.bench.reports import TrainingConfig, TrainingReport, TrainingResult
from wheelfactory.gpu.validation_report import Hardware

LOWER_IS_BETTER = {"median_step_ms": True, "tokens_per_s": False, "peak_mib": True}
"""The figures that are compared, and whether lower is better."""

# the largest difference of two losses, in nats. Both runs start with the same weights and data, so the first losses
# differ only by bfloat16 rounding (2**-8 of one token's score, less in the mean over thousands). The last losses differ
# by what many steps make of that
LOSS_BOUNDS = {"loss_first": 0.01, "loss_last": 0.1}


@dataclass(frozen=True)
class FigureChange:
    """One figure of one implementation, before and now."""

    implementation: str
    figure: str
    """A field of `TrainingResult`: a key of `LOWER_IS_BETTER` or `LOSS_BOUNDS`, or ``status``."""
    before: float | str
    now: float | str
    percent: float | None
    """The relative change; None for a loss or a status."""
    is_worse: bool


@dataclass(frozen=True)
class TrendPoint:
    """An implementation that a report measured."""

    report: TrainingReport
    result: TrainingResult
    step_ms: float
    percent: float | None
    """The change of the step time since the point before; None for the first."""

    @property
    def name(self) -> str:
        """The name of the implementation."""
        return self.result.implementation.name


def require_comparable(name: str, old: TrainingReport, config: TrainingConfig, hardware: Hardware) -> None:
    """Raises `InputError` unless the report called `name` has this configuration and hardware."""
    pairs: tuple[tuple[FrozenModel, FrozenModel], ...] = ((old.config, config), (old.hardware, hardware))
    values = [(field, value, getattr(here, field)) for there, here in pairs for field, value in there]
    found = [f"{field} {there} there, {here} here" for field, there, here in values if there != here]
    if found:
        hint = "compare reports with the same sizes, options and GPU"
        raise InputError("cannot compare these reports", f"{name}: {'; '.join(found)}", hint)


def require_common_implementation(old: TrainingReport, implementations: Collection[str]) -> None:
    """Raises `InputError` if the old report measured none of these implementations."""
    measured = [result.implementation.name for result in old.results if result.status == "measured"]
    if not set(measured) & set(implementations):
        hint = "select one of them with --implementations"
        raise InputError("nothing to compare", f"the old report measured: {', '.join(measured) or 'nothing'}", hint)


def compare_training(old: TrainingReport, new: TrainingReport, threshold: float) -> tuple[FigureChange, ...]:
    """Compare each implementation that both reports name and the old one measured.

    Worse means: a figure worse by more than `threshold` percent, a loss outside its bound, or a failed measurement.
    """
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
            # rounded: float noise must not push 5 % over a threshold of 5 %
            percent = round((now - before) / before * 100, 6)
            worse = percent if less_is_better else -percent
            yield FigureChange(name, figure, before, now, percent, is_worse=worse > threshold)
    for figure, bound in LOSS_BOUNDS.items():
        before, now = getattr(old, figure), getattr(new, figure)
        if before is not None and now is not None:
            yield FigureChange(name, figure, before, now, None, is_worse=abs(now - before) > bound)


def trend_points(reports: Mapping[str, TrainingReport]) -> tuple[TrendPoint, ...]:
    """The measured points of every implementation, ordered by time. The keys of `reports` appear in errors.

    Raises `InputError` unless all reports have one configuration and one hardware, and one has a measurement.
    """
    ordered = sorted(reports.items(), key=lambda item: item[1].time)
    newest = ordered[-1][1]
    for name, report in ordered[:-1]:
        require_comparable(name, report, newest.config, newest.hardware)
    points: list[TrendPoint] = []
    last: dict[str, float] = {}
    for _, report in ordered:
        for result in report.results:
            name, step = result.implementation.name, result.median_step_ms
            if step is not None:
                percent = (step - last[name]) / last[name] * 100 if name in last else None
                points.append(TrendPoint(report, result, step, percent))
                last[name] = step
    if not points:
        raise InputError("no measurement to compare", ", ".join(reports), "name a report with a median step time")
    return tuple(points)
