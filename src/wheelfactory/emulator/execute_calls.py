"""Execute recorded calls of CK's host API, compare the results with float64, and print a `CallReport` for each as JSON.

    python -I -B execute_calls.py JOB.json

Runs in a Python with numpy alone.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # isolated mode leaves out the folder of the package

import numpy as np

from wheelfactory.core.strict import parse_record
from wheelfactory.emulator.ck_calls import Call, CallReport, Difference
from wheelfactory.emulator.ck_problem import Problem
from wheelfactory.emulator.code_object import read_kernels
from wheelfactory.emulator.decode import CODE_ADDRESS
from wheelfactory.emulator.dispatch import Buffer, LoadedKernel
from wheelfactory.emulator.findings import Finding, NotRunError
from wheelfactory.wheel.elf.image import PT_LOAD, ElfImage

ORDERS = ("forward", "reversed")
"""Each call runs once in each order of work-groups and waves: one alone hides races, or calls healthy code wrong."""

_SEED = 0


@dataclass(frozen=True)
class Job:
    """What to execute."""

    calls: tuple[Call, ...]
    launches: Mapping[str, tuple[str, ...]]
    """By name of a call, the lines of ``hip_runtime.cpp``."""
    kernels: Mapping[str, tuple[str, str]]
    """By name of a kernel, the files of its code object and of that in words."""


def load(name: str, code: str, text: str) -> LoadedKernel:
    """Load a kernel from the files of its code object and of that in words."""
    data = Path(code).read_bytes()
    segments = (each for each in ElfImage(data).segments if each.type == PT_LOAD)
    constants = [
        Buffer("constants", np.frombuffer(bytearray(part), np.uint8), CODE_ADDRESS + each.address)
        for each in segments
        if (part := data[each.offset : each.offset + each.file_size])
    ]
    return LoadedKernel(read_kernels(data)[name], Path(text).read_text(encoding="utf-8"), constants)


@dataclass
class Execution:
    """Executes a call in all orders, and gathers what its kernels did."""

    launches: Mapping[str, Sequence[str]]
    kernels: Mapping[str, LoadedKernel]
    ran: dict[str, None] = field(default_factory=dict)
    instructions: int = 0
    worst: dict[str, Difference] = field(default_factory=dict)
    findings: dict[str, None] = field(default_factory=dict)
    not_run: str = ""

    def report(self, call: Call) -> CallReport:
        """Execute a call. A backward call with dropout runs the forward first, whose random bytes say what is kept."""
        start = time.process_time()
        for order in ORDERS:
            random = None
            if call.forward:
                drawn = Problem.draw(call.forward, _SEED)
                self._execute(drawn, order)
                random = drawn.arrays["random"]
            self._execute(Problem.draw(call, _SEED, random), order)
        return CallReport(
            name=call.name,
            kernels=tuple(self.ran),
            instructions=self.instructions,
            cpu_s=time.process_time() - start,
            differences=tuple(self.worst.values()),
            findings=tuple(self.findings),
            not_run=self.not_run,
        )

    def _execute(self, problem: Problem, order: str) -> None:
        buffers = problem.buffers()
        for line in self.launches[problem.call.name]:
            _, kernel, *words = line.split()
            x, y, z, width, height, depth, local = map(int, words[:7])
            arguments = [bytes.fromhex(word) for word in words[7:]]
            sizes = (x, y, z), (width, height, depth)
            try:
                done = self.kernels[kernel].launch(*sizes, arguments, buffers, dynamic_local=local, order=order)
            except NotRunError as error:
                self.not_run = self.not_run or f"{kernel}: {error}"
                return
            buffers = [replace(buffer, written=True) for buffer in buffers]  # by this launch, for the next
            self.ran[kernel] = None
            self.instructions += done.instructions
            self.findings |= dict.fromkeys(_shorten(done.findings))
        for each in problem.compare():
            if each.name not in self.worst or each.error > self.worst[each.name].error:
                self.worst[each.name] = each


def _shorten(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the first finding of each problem in each memory, with how many instructions have it."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.problem, finding.near), []).append(finding)
    for first, *others in alike.values():
        yield f"{first} (and {len(others)} other instructions)" if others else str(first)


def main(path: str) -> None:
    """Do a job; say each call on stderr as it ends."""
    job = parse_record(Job, Path(path).read_bytes())
    kernels, reports = {name: load(name, *files) for name, files in job.kernels.items()}, []
    for number, call in enumerate(job.calls, 1):
        reports.append(asdict(Execution(job.launches, kernels).report(call)))
        sys.stderr.write(f"{number}/{len(job.calls)} {call.name}\n")
    sys.stdout.write(json.dumps(reports) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
