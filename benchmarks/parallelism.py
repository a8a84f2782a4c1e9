"""Time kernels under two rules for the number of parallel compiles, in a control group with a memory limit.

    python benchmarks/parallelism.py [--cores 4 16 16] [--memory 16 64 16] [--weights 1 2 4] [--rules RULE...]

`halving` is the factory's rule, `admission` its predecessor. A fake compiler in C takes the memory and time of the
kernels of flash-attn 2.8.3 (`KINDS`), scaled down by `SMALLER` and `FASTER`. It uses real memory but sleeps instead of
computing, so two cores can simulate sixteen. Weight 4 means a compiler that needs four times the memory of Debian's
clang 21. Kernels of one kind differ by 15 % (`NOISE`), which no estimate includes. The most expensive kernels start
first, and a killed compile starts again until it finishes.

Results: docs/reference/kernels.md. Needs Linux, a control group of its own, and a C compiler.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter, sleep

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cgroups import MemoryLimit, memory_limited
from wheelfactory.build.setup_py import default_jobs
from wheelfactory.kernels.compiler.schedule import jobs_after_kill

SMALLER = 32
"""Divisor of memory: a gibibyte becomes 32 MiB."""
FASTER = 20
"""Divisor of time: a kernel of 36 s takes 1.8 s."""
DRIVER_GIB = 0.1
"""Memory of hipcc and the clang driver, in addition to the compiler process and regardless of its weight."""
RESERVE_GIB = 1 / 16
"""Memory that `Admission` leaves free."""

COMPILER = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MIB SECONDS: allocates evenly for three quarters of the time, then holds the memory. */
int main(int argc, char **argv)
{
    size_t part = argc == 3 ? (size_t)(atof(argv[1]) * 1048576 / 30) : 0;
    useconds_t pause = argc == 3 ? (useconds_t)(atof(argv[2]) * 1e6 / 40) : 0;
    for (int step = 0; step < 40; step++) {
        if (step < 30)
            memset(malloc(part), step + 1, part);
        usleep(pause);
    }
    return 0;
}
"""

KINDS = (
    (576, 0.87, 27.8),  # fwd
    (1280, 1.14, 35.7),  # bwd
    (576, 0.66, 19.5),  # splitkv
    (99, 0.65, 19.4),  # splitkv_combine
    (96, 0.42, 10.7),  # appendkv
    (96, 0.36, 9.0),  # bwd_convert_dq
    (48, 0.55, 14.7),  # bwd_dot_do_o
)
"""Files, GiB and CPU seconds of each kind for gfx942, measured with Debian's clang 21; means over head dimensions."""


NOISE = 0.15
"""Standard deviation of the logarithm of the memory of kernels of one kind."""


@dataclass(eq=False)
class Kernel:
    """A source on the simulated machine: the cost of its compile, and its process while it runs."""

    predicted_gib: float
    gib: float
    seconds: float
    kills: int = 0
    process: int = 0
    allowed_gib: float = 0.0
    """Memory that `Admission` expects the compile to need."""
    jobs: int = 0
    """Parallel compiles that `Halving` allowed at the start of this one."""


class Halving:
    """The factory's rule: one compile per core and 1.3 GiB; after a kill, half as many."""

    def __init__(self, cores: int, gib: float) -> None:
        self.jobs = default_jobs(cores, gib)

    def starts(self, kernel: Kernel, running: Collection[Kernel], _free_gib: float) -> bool:
        """Decide whether one more compile starts."""
        kernel.jobs = self.jobs
        return len(running) < self.jobs

    def ended(self, kernel: Kernel, _peak_gib: float, *, killed: bool) -> None:
        """Adapt after a compile ended."""
        if killed:
            self.jobs = jobs_after_kill(self.jobs, kernel.jobs)


class Admission:
    """Start a compile if its expected memory fits next to the expected growth of the running ones.

    Expected memory is the estimate times the highest measured-to-estimated ratio so far (8 before any measurement),
    doubled after each kill.
    """

    def __init__(self, cores: int, _gib: float) -> None:
        self.cores = cores
        self.ratio: float | None = None

    def starts(self, kernel: Kernel, running: Collection[Kernel], free_gib: float) -> bool:
        """Decide whether one more compile starts."""
        ratio = 8.0 if self.ratio is None else max(1.0, self.ratio)
        kernel.allowed_gib = (kernel.predicted_gib * ratio + DRIVER_GIB) * 2**kernel.kills
        to_come = sum(max(0.0, other.allowed_gib - resident_gib(other.process)) for other in running)
        fits = kernel.allowed_gib + RESERVE_GIB <= free_gib - to_come
        return len(running) < self.cores and (fits or not running)

    def ended(self, kernel: Kernel, peak_gib: float, *, killed: bool) -> None:
        """Adapt after a compile ended; a killed one would have needed at least its peak."""
        self.ratio = max(self.ratio or float(killed), (peak_gib - DRIVER_GIB) / kernel.predicted_gib)


def resident_gib(process: int) -> float:
    """Return the current memory of a compile, in GiB of the simulated machine."""
    pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE") * SMALLER / 2**30


Rule = Halving | Admission
RULES: dict[str, Callable[[int, float], Rule]] = {"halving": Halving, "admission": Admission}


@dataclass
class Result:
    """Seconds of the simulated machine, killed compiles, and the maximum of parallel compiles."""

    seconds: float = 0.0
    kills: int = 0
    most: int = 0


def simulate(rule: Rule, kernels: Sequence[Kernel], compiler: Path, limit: MemoryLimit) -> Result:
    """Compile all kernels under the limit."""
    left, running, result, start = list(kernels), dict[int, Kernel](), Result(), perf_counter()
    while left or running:
        process, status, used = os.wait4(-1, os.WNOHANG) if running else (0, 0, None)
        if used and process:
            kernel = running.pop(process)
            rule.ended(kernel, used.ru_maxrss * SMALLER / 2**20, killed=status != 0)
            if status:
                kernel.kills += 1
                result.kills += 1
                left.insert(0, kernel)
        if left and rule.starts(left[0], running.values(), (limit.mib - limit.held_mib) * SMALLER / 1024):
            kernel = left.pop(0)
            size, seconds = (kernel.gib + DRIVER_GIB) * 1024 / SMALLER, kernel.seconds / FASTER
            command = limit.command(compiler, f"{size:.2f}", f"{seconds:.3f}")
            kernel.process = os.posix_spawnp(command[0], command, os.environ)
            running[kernel.process] = kernel
            result.most = max(result.most, len(running))
        elif not process:
            sleep(0.2 / FASTER)
    result.seconds = (perf_counter() - start) * FASTER
    return result


def sample_kernels(count: int, weight: float) -> list[Kernel]:
    """Draw kernels of all kinds in proportion, the same on every call; most expensive first."""
    order = random.Random(0)  # noqa: S311 - must be repeatable
    kinds = order.choices(KINDS, weights=[files for files, _, _ in KINDS], k=count)
    kernels = [Kernel(gib, gib * weight * order.lognormvariate(0, NOISE), seconds) for _, gib, seconds in kinds]
    return sorted(kernels, key=lambda kernel: -kernel.seconds)


def main(arguments: Sequence[str]) -> None:
    """Print one line for each machine, weight and rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, nargs="+", default=[4, 16, 16], help="cores of each simulated machine")
    parser.add_argument("--memory", type=float, nargs="+", default=[16, 64, 16], help="GiB of each simulated machine")
    parser.add_argument("--weights", type=float, nargs="+", default=[1, 2, 4], help="memory factors")
    parser.add_argument("--kernels", type=int, default=160, help="kernels to compile")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES), help="rules to compare")
    options = parser.parse_args(arguments)
    machines = zip(options.cores, options.memory, strict=True)
    with tempfile.TemporaryDirectory() as name:
        compiler = Path(name) / "compiler"
        subprocess.run(["cc", "-O1", "-static", "-x", "c", "-", "-o", compiler], input=COMPILER, text=True, check=True)
        for (cores, gib), weight, rule in product(machines, options.weights, options.rules):
            with memory_limited(int(gib * 1024 / SMALLER)) as limit:
                result = simulate(RULES[rule](cores, gib), sample_kernels(options.kernels, weight), compiler, limit)
            machine = f"{cores} cores, {gib:g} GiB, weight {weight:g}"
            print(
                f"{machine}: {rule:10}{result.seconds:6.0f} s, {result.kills} kills, {result.most} at once", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])
