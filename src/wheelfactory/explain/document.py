"""An explanation -> the object that ``--json`` prints; docs/reference/explain.md names each key."""

from __future__ import annotations

from dataclasses import asdict

from wheelfactory.core.gpus import product
from wheelfactory.explain.command import Command
from wheelfactory.explain.describe import clock
from wheelfactory.explain.explanation import Explanation
from wheelfactory.explain.forecast import Forecast
from wheelfactory.explain.progress import Progress

Document = dict[str, object]


def document(explanation: Explanation) -> Document:
    """The whole explanation; what is not known is null, and every key is always there."""
    reading, kernel = explanation.reading, explanation.kernel
    return {
        "log": explanation.log,
        "lines": reading.lines,
        "state": reading.state,
        "torch": reading.torch or None,
        "archs": [{"arch": arch, "products": product(arch) or None} for arch in reading.archs],
        "progress": _progress(reading.progress) if reading.progress else None,
        "forecast": _forecast(explanation.forecast, explanation.jobs_from) if explanation.forecast else None,
        "cause": asdict(reading.cause) if reading.cause else None,
        "failed_objects": reading.failed_objects,
        "kernel": {**asdict(kernel), "family": kernel.family} if kernel else None,
        "command": _command(reading.command) if reading.command else None,
        "reasons": list(explanation.reasons),
        "advice": list(explanation.advice),
    }


def _progress(progress: Progress) -> Document:
    return {
        "done": progress.done,
        "total": progress.total,
        "left": progress.total - progress.done,
        "current": progress.current or None,
        "rate_per_minute": progress.rate,
        "elapsed_s": progress.elapsed_s,
        "told_left": progress.told_left or None,
        "peak_mib": progress.peak_mib,
        "runs": progress.runs,
        "mixed": progress.mixed,
    }


def _forecast(forecast: Forecast, jobs_from: str) -> Document:
    return {
        "jobs": forecast.jobs,
        "jobs_from": jobs_from,
        "archs": forecast.archs,
        "cpu_hours": forecast.cpu_hours,
        "cpu_hours_left": forecast.cpu_hours_left,
        "left_s": forecast.left_s,
        "measured": forecast.measured,
        "ends": clock(forecast.ends_at) if forecast.ends_at is not None else None,
        "whole_s": forecast.whole_s,
    }


def _command(command: Command) -> Document:
    return {
        "compiler": command.compiler,
        "rocm": command.rocm or None,
        "before": list(command.before),
        "source": command.source,
        "object": command.output or None,
        "archs": list(command.archs),
        "headers": [{"folder": folder, "of": whose} for folder, whose in command.headers],
        "flags": [asdict(flag) for flag in command.flags],
        "unknown": list(command.unknown),
    }
