"""Change single instructions of flash-attn's kernels, and count which changes the gate's calls notice; print JSON.

    python -I -B mutations.py SRC ARCH COUNT SEED [PATTERN ...]

It runs the gate's cases for each arch (without those that match !PATTERN) and keeps one launch of every kernel. Each
mutant is one change of an instruction that the launch executes. The launch is repeated with it, from the same memory. A
change is noticed if a number differs by more than the gate allows, by a finding, by an instruction that the emulator
refuses, or by an endless loop.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path += [sys.argv[1], str(Path(sys.argv[1], "wheelfactory/verify/programs"))]

import numpy as np
from check_numbers import accept_cpu_tensors, run_cases  # type: ignore[import-not-found]
from triton.runtime import driver  # type: ignore[import-not-found]

from wheelfactory.emulator import dispatch
from wheelfactory.emulator.assembly import Instruction, Program, parse_instruction
from wheelfactory.emulator.decode import decode
from wheelfactory.emulator.dispatch import Buffer, Execution, LoadedKernel
from wheelfactory.emulator.families import family_of
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.emulator.triton_driver import EmulatorDriver
from wheelfactory.emulator.wave import Run, Wave

ALLOWED = 3 * 2.0**-10
"""The gate's bound for a result of float16, relative to the largest number."""

PATIENCE = 4
"""Times the instructions of the original, after which a mutant counts as endless."""

NO_EFFECT = ("s_waitcnt", "s_wait", "s_nop", "s_delay_alu", "s_clause", "s_setprio", "s_endpgm", "s_sched", "s_inst")
"""Instructions that do nothing here: see docs/explanation/emulation.md."""


@dataclass
class Launch:
    """A launch to repeat: its memory before it and after it, and which instructions it executed."""

    loaded: LoadedKernel
    options: dict[str, Any]
    """The arguments of `LoadedKernel.launch`, by name."""
    buffers: Sequence[Buffer]
    before: list[Any]
    after: list[Any]
    executed: list[int]
    instructions: int


def record_launches(kept: dict[tuple[str, str], Launch]) -> None:
    """Keep the first launch of each kernel that is compiled."""
    launch = LoadedKernel.launch

    def recording(
        loaded: LoadedKernel, grid: Any, block: Any, arguments: Any, buffers: Any, **options: Any
    ) -> Execution:
        name = (loaded.kernel.name, loaded.assembly)
        if name in kept:
            return launch(loaded, grid, block, arguments, buffers, **options)
        before, code, executed = [each.data.copy() for each in buffers], loaded.code, set[int]()
        loaded.code = [noting(run, place, executed) for place, run in enumerate(code)]
        found = launch(loaded, grid, block, arguments, buffers, **options)
        loaded.code = code
        after = [each.data.copy() for each in buffers]
        # the tensors are freed later, so a repeated launch has memory of its own at their addresses
        own = [Buffer(each.name, each.data.copy(), each.address) for each in buffers]
        again = {"grid": grid, "block": block, "arguments": arguments, **options}
        rows = (loaded, again, own, before, after)
        kept[name] = Launch(*rows, sorted(executed), found.instructions)
        return found

    LoadedKernel.launch = recording  # type: ignore[method-assign,assignment]


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


def judge(launch: Launch, place: int, changed: Instruction) -> str:
    """Repeat a launch with a changed instruction; return how it is noticed, or ``unnoticed``."""
    for each, content in zip(launch.buffers, launch.before, strict=True):
        each.data[:] = content
    loaded = launch.loaded
    family, denormals = family_of(loaded.kernel.arch), loaded.kernel.rsrc1 >> 16 & 3
    original, program = loaded.code, loaded.program
    dispatch._MAX_INSTRUCTIONS = PATIENCE * launch.instructions
    try:
        (run, *_) = decode(Program((changed,), program.labels, None), family, denormals=denormals)
        loaded.code = [*original[:place], run, *original[place + 1 :]]
        found = loaded.launch(buffers=launch.buffers, **launch.options)
    except NotRunError:
        return "refused or endless"
    finally:
        loaded.code = original
    if found.findings:
        return "finding"
    results = [each.data for each in launch.buffers]
    wrong = any(differs(*pair) for pair in zip(results, launch.after, strict=True))
    return "wrong number" if wrong else "unnoticed"


def differs(found: Any, true: Any) -> bool:
    """Whether bytes differ as 16-bit and as 32-bit floats by more than is allowed."""
    if np.array_equal(found, true):
        return False
    size = found.size // 4 * 4
    pairs = [(found[:size].view(form), true[:size].view(form)) for form in (np.float16, np.float32)]
    with np.errstate(all="ignore"):
        return all(not is_near(a.astype(np.float64), b.astype(np.float64)) for a, b in pairs)


def is_near(found: Any, true: Any) -> bool:
    """Whether numbers are within the bound; NaN stands where it stood."""
    usual = np.isfinite(true) & (np.abs(true) < 1e4)
    if not np.array_equal(np.isnan(found), np.isnan(true)):
        return False
    apart = np.abs(found - true)[usual]
    return bool(np.all(apart <= ALLOWED * max(np.abs(true[usual]).max(initial=0), 1e-3)))


def mutants(launches: Sequence[Launch], count: int, draw: random.Random) -> Iterator[tuple[str, str, str, str]]:
    """Yield kernel, kind, text and outcome of each mutant."""
    made = 0
    while made < count:
        launch = draw.choice(launches)
        place = draw.choice(launch.executed)
        instruction = launch.loaded.program.instructions[place]
        if instruction.name.startswith(NO_EFFECT) or instruction.second:
            continue
        change = mutate(draw, instruction)
        if change is None:
            continue
        made += 1
        kind, changed = change
        text = f"{instruction.text} -> {changed.text}"
        yield launch.loaded.kernel.name, kind, text, judge(launch, place, changed)


def main(arch: str, count: int, seed: int, patterns: Sequence[str]) -> None:
    """Make the mutants, and print the counts and those that nothing noticed."""
    kept: dict[tuple[str, str], Launch] = {}
    record_launches(kept)
    driver.set_active(EmulatorDriver(arch))
    accept_cpu_tensors()
    run_cases("flash_attn", "arch", "cpu", patterns)
    rows = list(mutants(list(kept.values()), count, random.Random(seed)))  # noqa: S311  # a sample, no secret
    counts = Counter(f"{kind}: {outcome}" for _, kind, _, outcome in rows)
    unnoticed = [f"{kernel}: {text}" for kernel, _, text, outcome in rows if outcome == "unnoticed"]
    report = {"arch": arch, "kernels": len(kept), "mutants": count, "counts": counts, "unnoticed": unnoticed}
    sys.stdout.write(f"\n{json.dumps(report)}\n")


if __name__ == "__main__":
    main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
