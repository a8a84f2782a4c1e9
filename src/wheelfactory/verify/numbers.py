"""Rule: what a wheel's attention may be off by from one in float64, in Triton's interpreter and on a GPU alike."""

from __future__ import annotations

import math
from collections.abc import Iterator

from wheelfactory.cell import Backend
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.proofs import PROGRAMS, Report
from wheelfactory.verify.result import Finding

CHECK = PROGRAMS / "check_numbers.py"

TIMEOUT = 900.0
"""Seconds; on one core, in the interpreter, it takes less than a hundredth of it."""

MODULES = {Backend.CK: "flash_attn_2_cuda", Backend.TRITON: "flash_attn.flash_attn_triton_amd.interface_fa"}
"""What flash_attn calls for each backend."""

FACTORS = {Backend.CK: (4.0, 10.0), Backend.TRITON: (2.0, 3.0)}
"""How many times as far off as rounding alone the output and the gradients may be.

From upstream's tests of each backend (tests/test_flash_attn_ck.py and test_flash_attn_triton_amd.py of 2.8.3), which
compare with what torch makes of the same formula in the dtype of the inputs.
"""

_CURE = "the kernels do not fit this Triton or compiler: take the combination out of the matrix"


class Case(Report):
    """A call in one dtype."""

    name: str
    errors: dict[str, tuple[float, float]]
    """By result: the greatest error, and the greatest that rounding each result on the way to the dtype makes."""
    error: str | None
    """What was raised."""


class Numbers(Report):
    """What the functions of a wheel computed, and with what."""

    torch: str
    triton: str | None
    gpu: str | None
    """The arch of the AMD GPU that torch has."""
    backend: str
    """The module that flash_attn calls."""
    installed: bool
    """Whether that module is the one of the wheel, not one that the Python had before."""
    cases: tuple[Case, ...]


def find_faults(subject: Subject, numbers: Numbers | str, where: str) -> Iterator[Finding]:
    """What is wrong with what was computed `where` (for a person); that nothing was, if `numbers` is the reason."""
    backend = subject.cell.backend

    def finding(expected: str, found: str, cure: str = _CURE) -> Finding:
        return Finding(file=subject.wheel.path.name, expected=expected, found=found, cure=cure)

    if isinstance(numbers, str):
        yield finding(f"attention to run {where}", numbers, f"run the gate again; if it stays so, {_CURE}")
        return
    if numbers.backend != MODULES[backend]:
        yield finding(f"calls of {MODULES[backend]}", numbers.backend, "build the wheel with the backend of the cell")
    elif not numbers.installed:
        yield finding(
            f"{MODULES[backend]} of the wheel", "another flash-attn of this Python", "remove that, and verify again"
        )
    if not numbers.cases:
        yield finding(f"attention to run {where}", "no case")
    for case in numbers.cases:
        if case.error:
            yield finding(f"{case.name} to run {where}", case.error)
        for result, (error, bound) in bounded(case, backend).items():
            if not error <= bound:  # NaN is not
                expected = f"{result} of {case.name} to be off by {_short(bound):g} at most {where}"
                yield finding(expected, f"{_short(error):g}")


def bounded(case: Case, backend: Backend) -> dict[str, tuple[float, float]]:
    """The error and the bound of each result of a case."""
    output, gradient = FACTORS[backend]
    factor = {"output": output}
    return {name: (error, factor.get(name, gradient) * unit) for name, (error, unit) in case.errors.items()}


def figures(numbers: Numbers | str, backend: Backend) -> dict[str, float]:
    """The error and the bound of the result of each case that comes nearest to its bound.

    With two digits: what differs between the processors of two machines is far less.
    """
    found: dict[str, float] = {}
    for case in () if isinstance(numbers, str) else numbers.cases:
        pairs = [pair for pair in bounded(case, backend).values() if all(map(math.isfinite, pair)) and pair[1]]
        if pairs:
            nearest = max(pairs, key=lambda pair: pair[0] / pair[1])
            found[f"{case.name} error"], found[f"{case.name} bound"] = map(_short, nearest)
    return found


def _short(number: float) -> float:
    return float(f"{number:.2g}")
