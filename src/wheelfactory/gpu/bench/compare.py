"""Two reports of a training in, what became worse out; and the rule which reports can be compared at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from wheelfactory.core.errors import InputError
from wheelfactory.core.models import FrozenModel
from wheelfactory.gpu.bench.reports import TrainingConfig, TrainingReport, TrainingResult
from wheelfactory.gpu.validate.report import Hardware

LESS_IS_BETTER = {"median_step_ms": True, "tokens_per_s": False, "peak_mib": True}
"""The figures that are compared, and whether the lesser is the better."""

LOSS_BOUNDS = {"loss_first": 0.01, "loss_last": 0.1}
"""What losses, in nats, may differ by. Both begin with the same weights and data, so the first differs by the rounding
of bfloat16 (2**-8 of a score of a token, less in the mean over thousands); the last by what many steps make of that."""


@dataclass(frozen=True)
class Change:
    """One figure of one implementation, before and now."""

    implementation: str
    figure: str
    """A field of `TrainingResult`: of `LESS_IS_BETTER`, of `LOSS_BOUNDS`, or ``status``."""
    before: float | str
    now: float | str
    percent: float | None
    """What is added to the figure before; None for a loss and a status."""
    is_worse: bool


def require_comparable(name: str, old: TrainingReport, config: TrainingConfig, hardware: Hardware) -> None:
    """Raises `InputError` unless the report `name` is of this configuration and this hardware."""
    found = [*_differences(old.config, config), *_differences(old.hardware, hardware)]
    if found:
        raise InputError(
            "these trainings cannot be compared",
            f"{name}: {'; '.join(found)}",
            "compare reports of the same sizes, options and GPU",
        )


def require_shared(old: TrainingReport, implementations: Collection[str]) -> None:
    """Raises `InputError` if the old report measured none of these."""
    measured = [result.implementation.name for result in old.results if result.status == "measured"]
    if not set(measured) & set(implementations):
        raise InputError(
            "nothing to compare",
            f"measured there: {', '.join(measured) or 'nothing'}",
            "train with one of those: --implementations",
        )


def _differences(one: FrozenModel, other: FrozenModel) -> Iterator[str]:
    """The fields in which two values of one kind differ, with what each says."""
    for name in type(one).model_fields:
        before, now = getattr(one, name), getattr(other, name)
        if before != now:
            yield f"{name} {before} there, {now} here"


def compare(old: TrainingReport, new: TrainingReport, threshold: float) -> tuple[Change, ...]:
    """What became of each implementation that both reports name and the old one measured.

    Worse is a figure by more than `threshold` percent, a loss off by more than its bound, or what no longer runs."""
    before = {result.implementation.name: result for result in old.results if result.status == "measured"}
    pairs = [(before[name], now) for now in new.results if (name := now.implementation.name) in before]
    return tuple(change for pair in pairs for change in _changes(*pair, threshold))


def _changes(old: TrainingResult, new: TrainingResult, threshold: float) -> Iterator[Change]:
    name = new.implementation.name
    if new.status != "measured":
        yield Change(name, "status", old.status, new.status, None, is_worse=True)
        return
    for figure, less_is_better in LESS_IS_BETTER.items():
        before, now = getattr(old, figure), getattr(new, figure)
        if before and now is not None:
            percent = round((now - before) / before * 100, 6)  # 5 % is not more than 5 % for the way floats round
            worse = percent if less_is_better else -percent
            yield Change(name, figure, before, now, percent, is_worse=worse > threshold)
    for figure, bound in LOSS_BOUNDS.items():
        before, now = getattr(old, figure), getattr(new, figure)
        if before is not None and now is not None:
            yield Change(name, figure, before, now, None, is_worse=abs(now - before) > bound)
