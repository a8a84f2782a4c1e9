"""What rules for the number of compiles at once make of a machine's memory, in a control group that really kills.

    python benchmarks/parallelism.py --ninja PATH [--cores 16] [--memory 16] [--weight 1] [--noise 0.15]
    python benchmarks/parallelism.py --real [--memory 3]

The first plays a machine. A stand-in for the compiler, in C, takes the memory and the time that kernels of flash-attn
2.8.3 take (`KINDS`), scaled down. It sleeps instead of computing, so that two cores can play sixteen: no rule may start
more than `--cores`. Its memory is real. `--weight 4` is a compiler that needs four times as much; what AMD's needs is
not known here. `--noise` is how far kernels of a kind differ (the standard deviation of the logarithm of their memory),
of which no prediction knows. ninja must be 1.13 as PyPI has it, the first that is a client of a jobserver. What was
killed is compiled again, one after another, at the end. The ratio to the first rule, upstream's, is the figure to
watch.

The second compiles real kernels with the real compiler (see tests/real_kernels.py) on this machine, by upstream's rule
and by the factory's own program, with a limit of memory that has the guess of 2.8 GiB a job idle on two cores. Both run
through the same program with the same flags, as the compiler would not end with upstream's; what differs is how many it
may start. Other load on the machine takes from the second run more than from the first, so it is told beside the ratio,
with how many compiles ran at once, which it does not change.

docs/explanation/parallelism.md has what was measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cgroups import MemoryLimit, memory_limited
from hip_toolchain import make_hip_toolchain
from real_kernels import Bench, Built, make_bench
from wheelfactory.kernels.compiler.admission import Running, expected_mib, may_start
from wheelfactory.kernels.compiler.shards import Shard
from wheelfactory.kernels.handover import Wanted

SMALLER = 16
"""Memory is divided by this: a gibibyte is 64 MiB."""
FASTER = 20
"""Time is divided by this: a kernel of 37 s takes 1.85 s."""

PATIENCE = 20
"""Seconds of the machine that is played: about the time that a compile takes to its peak."""

COMPILER = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* MIB SECONDS: grows evenly for three quarters of the time, and holds what it has for the rest. */
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


@dataclass(frozen=True)
class Kernel:
    """A source: the memory and the time that its compile takes, on the machine that is played."""

    name: str
    predicted_gib: float
    gib: float
    seconds: float


KINDS = (
    (576, 0.87, 27.8),  # fwd
    (1280, 1.14, 35.7),  # bwd
    (576, 0.66, 19.5),  # splitkv
    (99, 0.65, 19.4),  # splitkv_combine
    (96, 0.42, 10.7),  # appendkv
    (96, 0.36, 9.0),  # bwd_convert_dq
    (48, 0.55, 14.7),  # bwd_dot_do_o
)
"""Files of a kind, GiB and CPU seconds for gfx942, measured with Debian's clang 21; means over the head dimensions."""


@dataclass(frozen=True)
class Machine:
    """What is played, and what plays it."""

    cores: int
    gib: float
    kernels: tuple[Kernel, ...]
    compiler: Path
    ninja: str

    def command(self, kernel: Kernel) -> list[str]:
        """The stand-in compile of a kernel."""
        return [str(self.compiler), f"{kernel.gib * 1024 / SMALLER:.1f}", f"{kernel.seconds / FASTER:.3f}"]


Rule = Callable[[Machine, MemoryLimit, Path], str]
"""Compiles all under the limit, in a folder of its own; says what it chose. A kernel that was made has a file there."""


def upstream(machine: Machine, limit: MemoryLimit, folder: Path) -> str:
    """flash-attn's setup.py: half the cores, and 9 GiB of free memory a job."""
    return _fixed(machine, limit, folder, max(1, min(machine.cores // 2, int(machine.gib / 9))))


def guess(machine: Machine, limit: MemoryLimit, folder: Path) -> str:
    """2.8 GiB a job, as one factory of such wheels has it."""
    return _fixed(machine, limit, folder, max(1, min(machine.cores, int(machine.gib / 2.8))))


def every_core(machine: Machine, limit: MemoryLimit, folder: Path) -> str:
    """What memory would allow if there were enough of it."""
    return _fixed(machine, limit, folder, machine.cores)


def _fixed(machine: Machine, limit: MemoryLimit, folder: Path, jobs: int) -> str:
    _ninja(machine, limit, folder, f"-j{jobs}").wait()
    return f"{jobs} jobs"


def jobserver(machine: Machine, limit: MemoryLimit, folder: Path) -> str:
    """ninja without -j as a client of a FIFO; a token is put in while memory is plenty, and taken while it is short.

    Short is less than two of the largest kernels need, plenty is twice that. After a token was put in, nothing more is
    until the compile has had time to grow (`PATIENCE`): free memory says nothing of what the running ones will take.
    """
    tokens = Tokens(folder / "fifo")
    build = _ninja(machine, limit, folder, MAKEFLAGS=f" --jobserver-auth=fifo:{folder}/fifo")
    short = 2 * max(kernel.gib for kernel in machine.kernels) * 1024 / SMALLER
    given, most = 0.0, 0
    while build.poll() is None:
        free = limit.mib - limit.held_mib
        if free < short:
            tokens.take()
        elif free > 2 * short and tokens.out < machine.cores - 1 and perf_counter() - given > PATIENCE / FASTER:
            tokens.give()
            given = perf_counter()
        most = max(most, tokens.out + 1)
        sleep(1 / FASTER)
    tokens.close()
    return f"{most} jobs at most"


class Tokens:
    """The FIFO of a jobserver, from the side that owns it.

    A token is waited for in a thread, as ninja takes at once what another of its jobs put back.
    """

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.fifo = os.open(path, os.O_RDWR)
        self.out = 0
        self.waiting: list[threading.Thread] = []

    def give(self) -> None:
        """One job more."""
        os.write(self.fifo, b"+")
        self.out += 1

    def take(self) -> None:
        """One job less, as soon as one ends; nothing if each that may run is being waited for."""
        self.waiting = [thread for thread in self.waiting if thread.is_alive()]
        if self.out:
            self.out -= 1
            self.waiting.append(threading.Thread(target=os.read, args=(self.fifo, 1)))
            self.waiting[-1].start()

    def close(self) -> None:
        """Gives the threads what they wait for."""
        os.write(self.fifo, b"+" * len(self.waiting))
        for thread in self.waiting:
            thread.join()
        os.close(self.fifo)


def admission(machine: Machine, limit: MemoryLimit, folder: Path) -> str:
    """The factory's: a compile starts when it fits beside what the running ones are predicted to take.

    What a kernel is expected to take is its prediction times the highest ratio of measured over predicted so far. Only
    in order, so a large kernel holds up the small ones behind it.
    """
    running: dict[subprocess.Popen[bytes], Kernel] = {}
    most, ratio = 0, None
    left = list(machine.kernels)
    while left or running:
        ended = [process for process, kernel in running.items() if _ended(process, kernel, folder)]
        for kernel in map(running.pop, ended):
            ratio = max(ratio or 0.0, kernel.gib / kernel.predicted_gib)
        if left and len(running) < machine.cores and _fits(left[0], running, ratio, limit):
            kernel = left.pop(0)
            running[subprocess.Popen(limit.command(*machine.command(kernel)))] = kernel
        else:
            sleep(0.2 / FASTER)
        most = max(most, len(running))
    return f"{most} jobs at most"


def _fits(
    kernel: Kernel, running: Mapping[subprocess.Popen[bytes], Kernel], ratio: float | None, limit: MemoryLimit
) -> bool:
    """Asked in the sizes of the machine that is played."""
    wanted, *allowed = (expected_mib(item.predicted_gib * 1024, ratio) for item in (kernel, *running.values()))
    resident = (_resident_mib(process.pid) * SMALLER for process in running)
    return may_start(wanted, (limit.mib - limit.held_mib) * SMALLER, map(Running, allowed, resident))


def _resident_mib(process: int) -> float:
    """Zero when it has ended."""
    pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE") / 2**20


def _ended(process: subprocess.Popen[bytes], kernel: Kernel, folder: Path) -> bool:
    if process.poll() == 0:
        (folder / kernel.name).touch()
    return process.returncode is not None


def _ninja(
    machine: Machine, limit: MemoryLimit, folder: Path, *options: str, **environ: str
) -> subprocess.Popen[bytes]:
    rule = "rule compile\n  command = $compiler && touch $out\n"
    edges = [
        f"build {item.name}: compile\n  compiler = {' '.join(machine.command(item))}\n" for item in machine.kernels
    ]
    (folder / "build.ninja").write_text(rule + "".join(edges))
    command = limit.command(machine.ninja, "--quiet", "-k0", *options)
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, env={**os.environ, **environ}, stdout=quiet, stderr=quiet)


RULES: tuple[Rule, ...] = (upstream, guess, every_core, jobserver, admission)


@dataclass(frozen=True)
class Result:
    """What a rule made of the machine."""

    seconds: float
    chose: str
    kills: int
    again: int
    peak_mib: float


def measure(rule: Rule, machine: Machine) -> Result:
    """Compiles all kernels, and those again that were killed."""
    with memory_limited(int(machine.gib * 1024 / SMALLER)) as limit, tempfile.TemporaryDirectory() as name:
        start = perf_counter()
        chose = rule(machine, limit, Path(name))
        killed = [kernel for kernel in machine.kernels if not Path(name, kernel.name).exists()]
        for kernel in killed:
            subprocess.run(limit.command(*machine.command(kernel)), check=True)
        return Result(perf_counter() - start, chose, limit.kills, len(killed), limit.peak_mib)


def some_kernels(count: int, weight: float, noise: float) -> tuple[Kernel, ...]:
    """A random order of all kinds, in their proportions; the same each time."""
    order = random.Random(0)  # noqa: S311 - it must be repeatable
    kinds = order.choices(KINDS, weights=[files for files, _, _ in KINDS], k=count)
    return tuple(
        Kernel(f"kernel{number}.o", gib, gib * weight * order.lognormvariate(0, noise), seconds)
        for number, (_, gib, seconds) in enumerate(kinds)
    )


@contextmanager
def stand_in() -> Iterator[Path]:
    """The program that plays the compiler."""
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "compiler"
        subprocess.run(["cc", "-O1", "-x", "c", "-", "-o", program], input=COMPILER, text=True, check=True)
        yield program


REAL_KERNELS = "*_psskddv"
"""Eight kernels that append to a cache of keys, of four head dims and two types, and their API: 0.3 to 0.5 GiB each."""


def compile_really(gib: float) -> None:
    """Prints what upstream's rule and the factory's make of real kernels for one arch, on all cores of this machine."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wheelfactory"
    cores = os.cpu_count() or 1
    rules = {"upstream": max(1, min(cores // 2, int(gib / 9))), "admission": cores}
    with tempfile.TemporaryDirectory() as name:
        bench = make_bench(make_hip_toolchain(home), home, Path(name), REAL_KERNELS, ("gfx942",))
        first = None
        for rule, jobs in rules.items():
            if first:  # admission knows a compiler that it has compiled with before
                shutil.copy(Path(name, "upstream/ledger.jsonl"), _made(Path(name, rule)))
            before, start = _busy_s(), perf_counter()
            with memory_limited(int(gib * 1024)) as limit:
                built = _under(limit, bench, rule, jobs)
                told = f"{limit.kills} kills, {limit.peak_mib / 1024:.1f} GiB"
            of_others = (_busy_s() - before - built.cpu_s) / (perf_counter() - start)
            seconds, at_once = _span(built), _at_once(built)
            first = first or seconds
            print(
                f"{rule:10} {jobs} jobs {seconds:6.1f} s {first / seconds:5.2f} x the first, {told}; "
                f"{len(built.objects)} kernels in {sum(item.cpu_s for item in built.objects.values()):.0f} CPU s, "
                f"{at_once:.2f} at once, {of_others:.2f} cores taken by other programs",
                flush=True,
            )


def _under(limit: MemoryLimit, bench: Bench, rule: str, jobs: int) -> Built:
    """Compile all kernels and link nothing, in a process of its own under the limit."""
    cell, whole = next(iter(bench.cells)), Wanted(shard=Shard(1, 1))
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), _enter, (limit,)) as pool:
        return pool.submit(bench.build, cell, rule, whole, MAX_JOBS=str(jobs)).result()


def _enter(limit: MemoryLimit) -> None:
    (limit.folder / "cgroup.procs").write_text(str(os.getpid()))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _span(built: Built) -> float:
    """Seconds from the first compile's start to the last one's end."""
    return max(item.end for item in built.objects.values()) - min(item.start for item in built.objects.values())


def _at_once(built: Built) -> float:
    """How many compiles ran at once, as a mean over the time from first to last."""
    return sum(item.end - item.start for item in built.objects.values()) / _span(built)


def _busy_s() -> float:
    """CPU seconds of all programs since the machine was started."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str]) -> None:
    """Prints one line a rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ninja", default="ninja", help="PyPI's ninja 1.13 or later")
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--memory", type=float, help="GiB; by default 16 to play, 3 for real kernels")
    parser.add_argument("--real", action="store_true", help="real kernels, on this machine")
    parser.add_argument("--noise", type=float, default=0.15, help="by how much kernels of a kind differ")
    parser.add_argument("--weight", type=float, default=1, help="memory of a compile, in those of Debian's clang 21")
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--rules", nargs="+", choices=[rule.__name__ for rule in RULES], metavar="RULE")
    options = parser.parse_args(arguments)
    if options.real:
        compile_really(options.memory or 3)
    else:
        play(options)


def play(options: argparse.Namespace) -> None:
    """Prints what each rule makes of the machine that is played."""
    kernels = some_kernels(options.kernels, options.weight, options.noise)
    with stand_in() as compiler:
        machine = Machine(options.cores, options.memory or 16, kernels, compiler, options.ninja)
        first = None
        for rule in RULES:
            if options.rules and rule.__name__ not in options.rules:
                continue
            result = measure(rule, machine)
            first = first or result.seconds
            ratio = f"{first / result.seconds:5.2f} x the first"
            killed = f"{result.kills:3} kills, {result.again:3} again"
            gib = result.peak_mib * SMALLER / 1024
            print(
                f"{rule.__name__:10} {result.seconds:6.1f} s {ratio}, {killed}, {gib:5.1f} GiB: {result.chose}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
