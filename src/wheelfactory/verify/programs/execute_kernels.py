"""Execute the Triton kernels of the installed flash-attn for a GPU arch on an emulator, and print a JSON report.

    python -I -B execute_kernels.py ARCH SUITE [--order forward|reversed|SEED] [PATTERN ...]

SUITE is `first` (every case) or `arch` (the few cases of each further arch). The public functions get CPU tensors.
Triton compiles each launched kernel for the arch, and its machine code runs on the emulator, so the report is "executed
in emulation for gfx942", never "on a GPU". Cases, errors and PATTERN are those of check_numbers.py. Memory that nobody
wrote is NaN.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from triton.runtime import driver  # type: ignore[import-not-found]

sys.path.append(str(Path(__file__).resolve().parent))  # isolated mode leaves out the folder of the program
sys.path.append(str(Path(__file__).resolve().parents[3]))  # the emulator needs nothing else of this package

from check_numbers import accept_cpu_tensors, report_case, run_cases  # type: ignore[import-not-found]
from without_amd_gpu import stand_in_gpu  # type: ignore[import-not-found]

from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.triton_driver import EmulatorDriver, Launch

ADDRESS_SPACE = 12 << 30
"""Bytes. A runaway compiler fails instead of filling the memory; one case reserves 4 GiB that it does not use."""

RESOURCES = ("vector_registers", "scalar_registers", "local", "scratch", "vector_spills", "scalar_spills")
"""What a kernel takes of a GPU; sizes in bytes."""


def describe_kernels(launches: Iterable[Launch]) -> list[dict[str, Any]]:
    """Return a row for each kernel: its variants, launches, instructions of all waves, and most of each resource."""
    rows: dict[str, dict[str, Any]] = {}
    variants: dict[str, set[Any]] = {}
    for launch in launches:
        kernel = launch.kernel
        row = rows.setdefault(kernel.name, dict.fromkeys(("launches", "instructions", *RESOURCES), 0))
        row["launches"] += 1
        row["instructions"] += launch.execution.instructions
        row |= {name: max(row[name], getattr(kernel, name)) for name in RESOURCES}
        variants.setdefault(kernel.name, set()).add(kernel)
    return [{"name": name, "variants": len(variants[name]), **row} for name, row in rows.items()]


def emulating(emulator: EmulatorDriver) -> Callable[..., dict[str, Any]]:
    """Return `report_case` that also reports launches, findings, and an instruction that the emulator does not know."""

    def report(*arguments: Any, **options: Any) -> dict[str, Any]:
        before = len(emulator.launches)
        found: dict[str, Any] = report_case(*arguments, **options)
        launches = emulator.launches[before:]
        texts = dict.fromkeys(str(finding) for launch in launches for finding in launch.execution.findings)
        kind, _, what = (found["exception"] or "").partition(": ")
        not_run = {"exception": None, "not_run": what.removeprefix("not run: ")} if kind == NotRunError.__name__ else {}
        return {**found, **not_run, "launches": len(launches), "findings": list(texts)}

    return report


def main(options: argparse.Namespace) -> None:
    """Run all cases and print the report."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # line info takes time, and nothing reads it
    torch.use_deterministic_algorithms(mode=True, warn_only=True)  # fills memory that torch.empty returns with NaN
    # decoding and compiling make many objects that stay: looking for garbage among them took a sixth of the time
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    emulator = EmulatorDriver(options.arch, options.order)
    driver.set_active(emulator)
    if find_spec("aiter"):
        stand_in_gpu(options.arch)
    accept_cpu_tensors()
    found = run_cases("flash_attn", options.suite, "cpu", options.patterns, emulating(emulator))
    report = {**found, "arch": options.arch, "kernels": describe_kernels(emulator.launches), "dropped": []}
    sys.stdout.write(f"\n{json.dumps(report)}\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; patterns may follow the option."""
    parser = argparse.ArgumentParser()
    parser.add_argument("arch")
    parser.add_argument("suite", choices=("arch", "first"))
    parser.add_argument("--order", default="forward")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    return parser.parse_intermixed_args(arguments)


if __name__ == "__main__":
    main(parse(sys.argv[1:]))
