"""Change single instructions of flash-attn's kernels, and count which changes the gate's cases notice; print JSON.

    python -I -B mutations.py SRC ARCH COUNT SEED [PATTERN ...]

It runs the gate's cases for each arch (without those that match !PATTERN) and notes which instructions each executes.
Each mutant is one change of an executed instruction, in the assembly text that Triton compiled. Every case that
executes it runs again, until one notices: by an error over the gate's limit, by a finding, by an instruction that the
emulator refuses, or by an endless loop.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path += [sys.argv[1], str(Path(sys.argv[1], "wheelfactory/verify/programs"))]

import torch
from check_numbers import accept_cpu_tensors, run_cases  # type: ignore[import-not-found]
from execute_kernels import emulating  # type: ignore[import-not-found]
from triton.runtime import driver  # type: ignore[import-not-found]

from wheelfactory.emulator import dispatch
from wheelfactory.emulator.assembly import Instruction, Program, parse_instruction
from wheelfactory.emulator.decode import decode
from wheelfactory.emulator.dispatch import Execution, LoadedKernel
from wheelfactory.emulator.families import does_nothing, family_of
from wheelfactory.emulator.triton_driver import EmulatorDriver
from wheelfactory.emulator.wave import Run, Wave

OUTPUT_LIMIT, LIMIT = 2, 3
"""The gate's limits of errors, as multiples of rounding (wheelfactory/verify/accuracy.py)."""

UNNOTICED = "unnoticed"

PATIENCE = 4
"""Times the instructions of the longest launch, after which a mutant counts as endless."""


@dataclass
class Case:
    """A case of the gate: how to run it, and what it launched, by the id of the kernel."""

    arguments: tuple[Any, ...]
    options: dict[str, Any]
    executed: dict[int, set[int]] = field(default_factory=dict)
    """Places of the instructions that ran."""


class Cases:
    """The gate's cases. `launch` replaces that of `LoadedKernel`, and notes into a case in its first run."""

    def __init__(self, emulator: EmulatorDriver) -> None:
        self.cases: list[Case] = []
        self.kernels: dict[int, LoadedKernel] = {}
        self.instructions = 0
        """Of the longest launch."""
        self._report, self._launch = emulating(emulator), LoadedKernel.launch
        self._noted: Case | None = None

        def launch(loaded: LoadedKernel, *arguments: Any, **options: Any) -> Execution:
            return self.launch(loaded, *arguments, **options)

        LoadedKernel.launch = launch  # type: ignore[method-assign,assignment]

    def launch(self, loaded: LoadedKernel, *arguments: Any, **options: Any) -> Execution:
        """Launch a kernel, and note its instructions in a first run."""
        if self._noted is None:
            return self._launch(loaded, *arguments, **options)
        self.kernels[id(loaded)] = loaded
        executed, code = self._noted.executed.setdefault(id(loaded), set()), loaded.code
        loaded.code = [noting(run, place, executed) for place, run in enumerate(code)]
        found = self._launch(loaded, *arguments, **options)
        loaded.code = code
        self.instructions = max(self.instructions, found.instructions)
        return found

    def first(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Run and keep a case, as `run_cases` calls it."""
        self._noted = case = Case(arguments, options)
        self.cases.append(case)
        found = self.run(case)
        self._noted = None
        return found

    def run(self, case: Case) -> dict[str, Any]:
        """Run a case, perhaps again, and return its report."""
        torch.manual_seed(0)  # the seeds of dropout are drawn
        found: dict[str, Any] = self._report(*case.arguments, **case.options)
        return found


def noting(run: Run, place: int, executed: set[int]) -> Run:
    """Return an instruction that notes that it is executed."""

    def noted(wave: Wave) -> None:
        executed.add(place)
        run(wave)

    return noted


def mutate(draw: random.Random, instruction: Instruction) -> tuple[str, Instruction] | None:
    """Return the kind of a change and the changed instruction; None if this change does not exist for it."""
    name, _, rest = instruction.text.partition(" ")
    operands = [each.strip() for each in rest.split(",")]
    kind = draw.choice(["dropped", "register", "constant", "swapped"])
    if kind == "dropped":
        return kind, parse_instruction("s_nop 0", instruction.line)
    places = [number for number, text in enumerate(operands) if number and wanted(kind, text)]
    if kind == "swapped":
        if len(places) < 2 or operands[places[0]] == operands[places[1]]:
            return None
        first, second = places[:2]
        operands[first], operands[second] = operands[second], operands[first]
    elif places:
        place = draw.choice(places)
        value = operands[place]
        operands[place] = f"v{int(value[1:]) ^ 1}" if kind == "register" else str(int(value, 0) ^ 1)
    else:
        return None
    return kind, parse_instruction(f"{name} {', '.join(operands)}", instruction.line)


def wanted(kind: str, operand: str) -> bool:
    """Whether a change is about such an operand."""
    if kind == "constant":
        return operand.lstrip("-").isdigit() or operand.startswith("0x")
    return operand[:1] == "v" and operand[1:].isdigit()


def judge(cases: Cases, loaded: LoadedKernel, place: int, changed: Instruction) -> str:
    """Run the cases that execute an instruction with a changed one; return how it ends."""
    family, denormals = family_of(loaded.kernel.arch), loaded.kernel.rsrc1 >> 16 & 3
    (run, *_) = decode(Program((changed,), loaded.program.labels, None), family, denormals=denormals)
    original = loaded.code
    affected = [case for case in cases.cases if place in case.executed.get(id(loaded), ())]
    loaded.code = [*original[:place], run, *original[place + 1 :]]
    try:
        return next(filter(None, (noticed(cases.run(case)) for case in affected)), UNNOTICED)
    finally:
        loaded.code = original


def noticed(report: dict[str, Any]) -> str | None:
    """Return how the gate notices a fault in the report of a case; None if it does not."""
    if report.get("not_run") or report["exception"]:
        return "not run"
    if report["findings"]:
        return "finding"
    for name, (error, rounding) in report["errors"].items():
        if not error <= rounding * (OUTPUT_LIMIT if name == "output" else LIMIT):
            return "wrong number"
    return None


def mutants(cases: Cases, count: int, draw: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Yield kernel, kind, text and outcome of each mutant."""
    executed: dict[int, set[int]] = {}
    for case in cases.cases:
        for number, places in case.executed.items():
            executed.setdefault(number, set()).update(places)
    known, made = list(executed), 0
    while made < count:
        number = draw.choice(known)
        loaded, place = cases.kernels[number], draw.choice(sorted(executed[number]))
        instruction = loaded.program.instructions[place]
        if does_nothing(instruction.name) or instruction.name == "s_endpgm" or instruction.second:
            continue
        change = mutate(draw, instruction)
        if change is None:
            continue
        made += 1
        kind, changed = change
        text = f"{instruction.text} -> {changed.text}"
        yield loaded.kernel.name, kind, text, judge(cases, loaded, place, changed)


def main(arch: str, count: int, seed: int, patterns: Sequence[str]) -> None:
    """Make the mutants, and print the counts and those that nothing noticed."""
    torch.use_deterministic_algorithms(mode=True, warn_only=True)  # fills memory that torch.empty returns with NaN
    emulator = EmulatorDriver(arch)
    driver.set_active(emulator)
    accept_cpu_tensors()
    cases = Cases(emulator)
    run_cases("flash_attn", "arch", "cpu", patterns, cases.first)
    dispatch._MAX_INSTRUCTIONS = PATIENCE * cases.instructions
    rows = []
    for row in mutants(cases, count, random.Random(seed)):  # noqa: S311  # a sample, no secret
        sys.stderr.write(f"{': '.join(row)}\n")
        rows.append(row)
    counts = Counter(f"{kind}: {outcome}" for _, kind, _, outcome in rows)
    by_kernel = Counter(kernel for kernel, *_ in rows)
    unnoticed = [f"{kernel}: {text}" for kernel, _, text, outcome in rows if outcome == UNNOTICED]
    report = {"arch": arch, "kernels": by_kernel, "mutants": count, "counts": counts, "unnoticed": unnoticed}
    sys.stdout.write(f"\n{json.dumps(report)}\n")


if __name__ == "__main__":
    main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
