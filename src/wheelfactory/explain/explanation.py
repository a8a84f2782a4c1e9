"""A reading -> its explanation: with the kernel's name read, the time left, the reasons and what to change."""

from __future__ import annotations

from dataclasses import dataclass

from wheelfactory.explain.advice import advice, reasons
from wheelfactory.explain.forecast import Forecast, forecast
from wheelfactory.explain.kernel_name import KernelName, read_name
from wheelfactory.explain.reading import FAILED, Reading

NO_NINJA = "the log: no ninja"
CORES = "the cores of this machine"
"""Where the number of jobs is from if nothing tells it: a guess."""


@dataclass(frozen=True)
class Explanation:
    """What there is to say of a log."""

    log: str
    reading: Reading
    kernel: KernelName | None
    """What is compiled now, or what failed; None if the log names no generated kernel."""
    forecast: Forecast | None
    """None if the log tells of no compile, or of one for CUDA."""
    jobs_from: str
    """Where the number of jobs is from: ``--jobs``, ``the log``, `NO_NINJA`, `CORES`."""
    reasons: tuple[str, ...]
    advice: tuple[str, ...]


def explain(log: str, reading: Reading, jobs: int | None, cores: int) -> Explanation:
    """Explain what was read of the log called `log`.

    `jobs` is what the person said; without it that of the log counts, else the `cores` of this machine.
    """
    at_once, jobs_from = _jobs(reading, jobs, cores)
    so_far = reading.jobs or at_once
    ahead = None
    if reading.progress and not (reading.command and reading.command.is_cuda):  # costs were measured for AMD
        ahead = forecast(reading.progress, at_once, max(len(reading.archs), 1), so_far)
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
        return 1, NO_NINJA
    return (reading.jobs, "the log") if reading.jobs else (cores, CORES)


def _kernel(reading: Reading) -> KernelName | None:
    names = [reading.progress.current if reading.progress else "", reading.command.name if reading.command else ""]
    if reading.state == FAILED:  # the command is that of the first failure, and others ended after it
        names.reverse()
    return next((kernel for kernel in map(read_name, names) if kernel), None)
