"""A reading -> its explanation: with the kernel's name read, the time left, the reasons and what to change."""

from __future__ import annotations

from dataclasses import dataclass

from wheelfactory.explain.advice import advice, reasons
from wheelfactory.explain.forecast import Forecast, forecast
from wheelfactory.explain.kernel_name import KernelName, read_name
from wheelfactory.explain.reading import FAILED, Reading


@dataclass(frozen=True)
class Explanation:
    """What there is to say of a log."""

    log: str
    reading: Reading
    kernel: KernelName | None
    """What is compiled now, or what failed; None if the log names no generated kernel."""
    forecast: Forecast | None
    """None if the log tells of no compile."""
    jobs_from: str
    """Where the number of jobs is from: ``--jobs``, ``the log``, ``the cores of this machine``."""
    reasons: tuple[str, ...]
    advice: tuple[str, ...]


def explain(log: str, reading: Reading, jobs: int | None, cores: int) -> Explanation:
    """Explain what was read of the log called `log`.

    `jobs` is what the person said; without it that of the log counts, else the `cores` of this machine.
    """
    at_once, jobs_from = _jobs(reading, jobs, cores)
    so_far = reading.jobs or at_once
    ahead = forecast(reading.progress, at_once, max(len(reading.archs), 1), so_far) if reading.progress else None
    return Explanation(
        log=log,
        reading=reading,
        kernel=_kernel(reading),
        forecast=ahead,
        jobs_from=jobs_from,
        reasons=reasons(reading, ahead),
        advice=advice(reading, ahead),
    )


def _jobs(reading: Reading, jobs: int | None, cores: int) -> tuple[int, str]:
    if jobs:
        return jobs, "--jobs"
    if reading.no_ninja:
        return 1, "the log: no ninja"
    return (reading.jobs, "the log") if reading.jobs else (cores, "the cores of this machine")


def _kernel(reading: Reading) -> KernelName | None:
    names = [reading.progress.current if reading.progress else "", reading.command.name if reading.command else ""]
    if reading.state == FAILED:  # the command is that of the first failure, and others ended after it
        names.reverse()
    return next((kernel for kernel in map(read_name, names) if kernel), None)
