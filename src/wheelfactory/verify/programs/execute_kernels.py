"""Execute the Triton kernels of the installed flash-attn for a GPU arch by an emulator, and print a JSON report.

    python -I -B execute_kernels.py gfx942 [--order forward|reversed|SEED] [PATTERN ...]

It calls the public functions with CPU tensors. Triton compiles each launched kernel for the arch, and its machine code
runs on the emulator, so the report is "executed for gfx942 by an emulator", never "on a GPU". Errors are those of
check_numbers.py, against float64. PATTERN skips the backward pass of matching cases, !PATTERN skips the cases.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import triton  # type: ignore[import-not-found]
from triton.runtime import driver  # type: ignore[import-not-found]

sys.path.append(str(Path(__file__).resolve().parent))  # isolated mode leaves out the folder of the program
sys.path.append(str(Path(__file__).resolve().parents[3]))  # the emulator needs nothing else of this package

from check_numbers import accept_cpu_tensors, choose, matches, measure_errors  # type: ignore[import-not-found]
from stand_in_gpu import restart_without_assertions, stand_in_gpu  # type: ignore[import-not-found]

from wheelfactory.emulator.dispatch import Order
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.triton_driver import EmulatorDriver, Launch


def describe_launches(launches: Iterable[Launch]) -> list[dict[str, Any]]:
    """Return a row for each kernel: its launches, instructions of all waves, seconds, resources and findings."""
    rows: dict[str, dict[str, Any]] = {}
    for launch in launches:
        kernel = launch.kernel
        row = rows.setdefault(
            f"{kernel.name} {kernel.describe_resources()}",
            {
                "name": kernel.name,
                "resources": kernel.describe_resources(),
                "spills": kernel.vector_spills,
                **dict.fromkeys(("launches", "instructions", "seconds"), 0),
                "findings": [],
            },
        )
        row["launches"] += 1
        row["instructions"] += launch.execution.instructions
        row["seconds"] += round(launch.seconds, 3)
        row["findings"] += [text for each in launch.execution.findings if (text := str(each)) not in row["findings"]]
    return list(rows.values())


def run_cases(emulator: EmulatorDriver, patterns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a report of every case that is not skipped; one failure does not stop the others."""
    skipped = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    for name, case, dtype in choose(argparse.Namespace(module="flash_attn", device="emulator", suite="small")):
        if matches(name, skipped):
            continue
        sys.stderr.write(f"at: {name}\n")
        emulator.launches.clear()
        errors, exception, not_run, refused = {}, None, None, None
        backward = case.has_gradients and not matches(name, patterns)
        try:
            errors = measure_errors("flash_attn", case, getattr(torch, dtype), "cpu", backward=backward)
        except NotRunError as error:
            not_run = str(error)
        except NotImplementedError as error:
            refused = str(error)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            exception = f"{type(error).__name__}: {lines[-1]}"
        kernels = describe_launches(emulator.launches)
        why = {"exception": exception, "not_run": not_run, "refused": refused}
        yield {"name": name, "errors": errors, **why, "kernels": kernels}


def main(options: argparse.Namespace) -> None:
    """Run all cases and print the report."""
    order = int(options.order) if options.order.isdigit() else options.order
    emulator = EmulatorDriver(options.arch, Order(order, order))
    driver.set_active(emulator)
    if find_spec("aiter"):
        restart_without_assertions()
        stand_in_gpu(options.arch)
    accept_cpu_tensors()
    cases = list(run_cases(emulator, options.patterns))
    report = {"arch": options.arch, "torch": torch.__version__, "triton": triton.__version__, "cases": cases}
    sys.stdout.write(f"\n{json.dumps(report)}\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; patterns may follow the option."""
    parser = argparse.ArgumentParser()
    parser.add_argument("arch")
    parser.add_argument("--order", default="forward")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    return parser.parse_intermixed_args(arguments)


if __name__ == "__main__":
    main(parse(sys.argv[1:]))
