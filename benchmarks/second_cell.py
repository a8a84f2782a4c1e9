"""Measure building one more wheel after its kernels are compiled: everything except the compilers.

    python benchmarks/second_cell.py [--small]

Runs the real sdist of flash-attn 2.8.3, its setup.py and generate.py, torch's cpp_extension and hipify, ninja, the
linker and auditwheel at full size: 2,199 kernels, 7 bindings, three archs. hipcc is the fake compiler of the tests and
takes no time, so the result is the factory's and upstream's own work. The first build compiles everything; then a
machine with only the archives builds the same cell. Prints the seconds of both and their ratios. The second must stay
below 60 s on two cores. Takes some minutes and 3 GB in $TMPDIR. --small uses a test release of eight kernels.

Measured with whole objects of all 2,775 kernels of 2.8.3, CPython 3.11.7, torch 2.13, two idle cores, November 2026:
kernels 128.2 s (wall), 173.6 s (CPU); a wheel with the archive 49.5 s and 48.4 s; with the store 53.0 s and 47.6 s;
ratios 0.39 and 0.28. hipify, one thread of torch's, is about half of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from rocm_machine import CELL, KERNEL_SETS, Machine, make_machine, make_rocm, pack_kernels
from small_release import SMALL_SETS, make_small_release
from wheelfactory.kernels.archive import find_archives, unpack_archive


def timed(machine: Machine, *arguments: str | Path) -> tuple[float, float]:
    """Run a factory command and return its wall and CPU seconds."""
    before, start = os.times(), perf_counter()
    done = machine.run(*arguments)
    after = os.times()
    if done.returncode:
        raise SystemExit(done.stderr)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return perf_counter() - start, cpu


def main() -> None:
    """Build a first wheel, then another with its kernels twice, and print the seconds of each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--small", action="store_true", help="use the test release of eight kernels")
    small = parser.parse_args().small
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "rocm").mkdir()
        environ = make_rocm(home / "wheelfactory", folder / "rocm", folder / "venv", real_torch=not small)
        first, second = (make_machine(folder / name, home / "wheelfactory", environ) for name in ("first", "second"))
        options: tuple[str | Path, ...] = ()
        set_ids = SMALL_SETS if small else KERNEL_SETS
        for machine in (first, second) if small else ():
            (machine.cache / "sources").unlink()  # not shared, because the small release replaces the real sources
            options = ("--matrix", make_small_release(machine.cache, folder))
        archives = folder / "archives"
        archives.mkdir()
        whole = timed(first, "build", CELL.id, "--dest", folder / "first-dist", *options)
        report("the first wheel and all kernels", *whole, first)
        pack_kernels(first, archives, set_ids)
        linked = timed(second, "build", CELL.id, "--kernels", archives, "--dest", folder / "dist", *options)
        report("a wheel with the archives", *linked, second)
        again = timed(second, "build", CELL.id, "--dest", folder / "dist", *options)
        report("and with the store", *again, second)
        start = perf_counter()
        for set_id in set_ids:
            unpack_archive(find_archives(archives, set_id)[0], folder / "unpacked")
        print(f"  unpacking the archives, included {perf_counter() - start:6.1f} s")
        print(f"the wheel over the first one: {linked[0] / whole[0]:.2f} (wall), {linked[1] / whole[1]:.2f} (CPU)")


def report(what: str, wall: float, cpu: float, machine: Machine) -> None:
    """Print a line of the result."""
    print(f"{what:34} {wall:6.1f} s wall, {cpu:6.1f} s CPU, {len(machine.compiled())} compiles")


if __name__ == "__main__":
    main()
