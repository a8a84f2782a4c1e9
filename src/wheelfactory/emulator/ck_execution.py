"""Execute recorded launches of CK's host API on the emulator, and compare the results with float64."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wheelfactory.emulator.ck_calls import Call, CallReport, Difference
from wheelfactory.emulator.ck_problem import Problem
from wheelfactory.emulator.dispatch import LoadedKernel, Size
from wheelfactory.emulator.findings import Finding, NotRunError

ORDERS = ("forward", "reversed")
"""Each call runs once in each order of work-groups and waves: one alone hides races, or calls healthy code wrong."""

_SEED = 0


@dataclass(frozen=True)
class Launch:
    """A launch that host code made. `local` are bytes of local memory beyond the kernel's own."""

    kernel: str
    grid: Size
    block: Size
    local: int
    arguments: tuple[bytes, ...]

    @classmethod
    def parse(cls, line: str) -> Launch:
        """Parse a line of ``hip_runtime.cpp``."""
        _, kernel, *words = line.split()
        x, y, z, width, height, depth, local = map(int, words[:7])
        return cls(kernel, (x, y, z), (width, height, depth), local, tuple(map(bytes.fromhex, words[7:])))


def execute_call(
    call: Call,
    recorded: Mapping[str, Sequence[str]],
    kernels: Mapping[str, LoadedKernel],
) -> CallReport:
    """Execute the launches of a call, by its name in `recorded`, once in each of `ORDERS`.

    A backward call with dropout runs the forward first, whose random bytes say which weights are kept.
    """
    start, reports = time.process_time(), []
    for order in ORDERS:
        random = None
        if forward := call.forward:
            drawn = Problem.draw(forward, _SEED)
            reports.append(_execute(drawn, recorded[forward.name], kernels, order))
            random = drawn.arrays["random"]
        reports.append(_execute(Problem.draw(call, _SEED, random), recorded[call.name], kernels, order))
    worst: dict[str, Difference] = {}
    for each in (difference for report in reports for difference in report.differences):
        if each.name not in worst or each.error > worst[each.name].error:
            worst[each.name] = each
    return CallReport(
        name=call.name,
        kernels=tuple(dict.fromkeys(name for report in reports for name in report.kernels)),
        instructions=sum(report.instructions for report in reports),
        cpu_s=time.process_time() - start,
        differences=tuple(worst.values()),
        findings=tuple(dict.fromkeys(text for report in reports for text in report.findings)),
        not_run=next((report.not_run for report in reports if report.not_run), ""),
    )


def _execute(problem: Problem, lines: Sequence[str], kernels: Mapping[str, LoadedKernel], order: str) -> CallReport:
    buffers = problem.buffers()
    report = CallReport(problem.call.name, (), 0, 0.0, (), ())
    try:
        for launch in map(Launch.parse, lines):
            loaded = kernels[launch.kernel]
            done = loaded.launch(
                launch.grid, launch.block, launch.arguments, buffers, dynamic_local=launch.local, order=order
            )
            buffers = [replace(buffer, written=True) for buffer in buffers]  # by this launch, for the next
            report = replace(
                report,
                kernels=(*report.kernels, launch.kernel),
                instructions=report.instructions + done.instructions,
                findings=(*report.findings, *_shorten(done.findings)),
            )
    except NotRunError as error:
        return replace(report, not_run=f"{launch.kernel}: {error}")
    return replace(report, differences=tuple(problem.compare()))


def _shorten(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the first finding of each problem in each memory, with how many instructions have it."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.problem, finding.near), []).append(finding)
    for first, *others in alike.values():
        yield f"{first} (and {len(others)} other instructions)" if others else str(first)
