"""Rule: what a wheel's attention may be off by from one in float64, in Triton's interpreter and on a GPU alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wheelfactory.core.cell import Backend
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import KnownLimit
from wheelfactory.verify.proofs import PROGRAMS, ProgramReport, payload_sha256
from wheelfactory.verify.result import Finding, GateResult, is_within

NUMBERS_PROGRAM = PROGRAMS / "check_numbers.py"

TIMEOUT_S = 900.0
"""Seconds for the small suite; on one core, in the interpreter, it takes less than a hundredth of it."""


@dataclass(frozen=True)
class Tolerance:
    """What must be called, and how many times as far off as rounding alone the output and the gradients may be."""

    module: str
    output: float
    gradient: float


TOLERANCES = {
    Backend.CK: Tolerance("flash_attn_2_cuda", 4.0, 10.0),
    Backend.TRITON: Tolerance("flash_attn.flash_attn_triton_amd.interface_fa", 2.0, 3.0),
}
"""What flash_attn calls for each backend, and what it may be off by.

From upstream's tests of each backend (tests/test_flash_attn_ck.py and test_flash_attn_triton_amd.py of 2.8.3), which
compare with what torch makes of the same formula in the dtype of the inputs.
"""

FALLBACK_TOLERANCE = Tolerance("flash_attention_amd", 2.0, 3.0)
"""Of flash-attention-amd; from upstream's tests/test_flash_attn.py of 2.8.3."""

_CURE = "the kernels do not fit this Triton or compiler: take the combination out of the matrix"


class NumericCase(ProgramReport):
    """A call in one dtype."""

    name: str
    errors: dict[str, tuple[float, float]]
    """By result: the greatest error, and the greatest that rounding each result on the way to the dtype makes."""
    error: str | None
    """What was raised."""


class NumericReport(ProgramReport):
    """What the functions of a wheel computed, and with what."""

    torch: str
    triton: str | None
    gpu: str | None
    """The arch of the GPU that torch has: ``gfx942``, ``sm_90``."""
    backend: str
    """The module that computes: the one that flash_attn calls, or flash_attention_amd."""
    file: str
    """Where that module is."""
    installed: bool
    """Whether that module is the one of the wheel, not one that the Python had before."""
    cases: tuple[NumericCase, ...]
    left_out: tuple[str, ...]
    """The names of those that were not asked for."""
    symbols: dict[str, int]
    """The functions that were called, and how often: ``flash_attn_2_cuda.fwd``."""
    dropped: tuple[str, ...]
    """Launch options that were left out, in the non-AMD GPU test mode."""


def find_numeric_faults(file: str, standard: Tolerance, numbers: NumericReport | str, where: str) -> Iterator[Finding]:
    """What is wrong with what the wheel `file` computed `where` (for a person).

    If nothing was computed, `numbers` is the reason.
    """

    def finding(expected: str, found: str, cure: str = _CURE) -> Finding:
        return Finding(file=file, expected=expected, found=found, remedy=cure)

    if isinstance(numbers, str):
        yield finding(f"attention to run {where}", numbers, f"run the gate again; if it stays so, {_CURE}")
        return
    if numbers.backend != standard.module:
        yield finding(f"calls of {standard.module}", numbers.backend, "build the wheel with the backend of the cell")
    elif not numbers.installed:
        yield finding(f"{standard.module} of the wheel", "another one of this Python", "remove that, and verify again")
    if not numbers.cases:
        yield finding(f"attention to run {where}", "no case")
    for case in numbers.cases:
        if case.error:
            yield finding(f"{case.name} to run {where}", case.error)
        for result, (error, bound) in error_bounds(case, standard).items():
            if not is_within(error, bound):
                expected = f"{result} of {case.name} to be off by {_short(bound):g} at most {where}"
                yield finding(expected, f"{_short(error):g}")


def numeric_gate_result(
    subject: Subject,
    gate: str,
    answer: NumericReport | str,
    where: str,
    computed: str,
    limits: Iterable[KnownLimit],
    versions: Mapping[str, str],
) -> GateResult:
    """The result of a gate from what a wheel computed `where`; if nothing was computed, `answer` is the reason.

    `computed` says for a person with what, `limits` what was not asked for.
    """
    standard = TOLERANCES[subject.cell.backend]
    return GateResult.from_findings(
        gate,
        list(find_numeric_faults(subject.wheel.path.name, standard, answer, where)),
        "; ".join([f"{computed}, against float64", *map(str, limits)]),
        versions={"flash-attn payload": payload_sha256(subject.wheel)[:16], **versions},
        figures=worst_errors(answer, standard),
    )


def error_bounds(case: NumericCase, standard: Tolerance) -> dict[str, tuple[float, float]]:
    """The error and the bound of each result of a case."""
    return {
        name: (error, (standard.output if name == "output" else standard.gradient) * unit)
        for name, (error, unit) in case.errors.items()
    }


def worst_errors(numbers: NumericReport | str, standard: Tolerance) -> dict[str, float]:
    """The error and the bound of the result of each case that comes nearest to its bound.

    With two digits: what differs between the processors of two machines is far less.
    """
    found: dict[str, float] = {}
    for case in () if isinstance(numbers, str) else numbers.cases:
        short = [(_short(error), _short(bound)) for error, bound in error_bounds(case, standard).values()]
        pairs = [pair for pair in short if all(map(math.isfinite, pair)) and pair[1]]  # to round may make it infinite
        if pairs:
            found[f"{case.name} error"], found[f"{case.name} bound"] = max(pairs, key=lambda pair: pair[0] / pair[1])
    return found


def _short(number: float) -> float:
    return float(f"{number:.2g}")
