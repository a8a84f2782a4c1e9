"""The error limits for a wheel's attention, compared with float64; the same in Triton's interpreter and on a GPU."""

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
"""Seconds for the small suite; in the interpreter on one core it needs less than 9."""


@dataclass(frozen=True)
class Tolerance:
    """The module that must compute, and the allowed errors as multiples of the error of rounding alone."""

    module: str
    output: float
    gradient: float


TOLERANCES = {
    Backend.CK: Tolerance("flash_attn_2_cuda", 4.0, 10.0),
    Backend.TRITON: Tolerance("flash_attn.flash_attn_triton_amd.interface_fa", 2.0, 3.0),
}
"""The tolerance of each backend.

Source: upstream's tests (tests/test_flash_attn_ck.py and test_flash_attn_triton_amd.py of 2.8.3), which compare with
torch's result of the same formula in the dtype of the inputs.
"""

FALLBACK_TOLERANCE = Tolerance("flash_attention_amd", 2.0, 3.0)
"""The tolerance of flash-attention-amd. Source: upstream's tests/test_flash_attn.py of 2.8.3."""

_REMEDY = "remove the combination from matrix.yaml: the kernels do not work with this Triton or compiler"


class NumericCase(ProgramReport):
    """A call in one dtype."""

    name: str
    errors: dict[str, tuple[float, float]]
    """The largest error of each result, and the largest error of rounding every intermediate result to the dtype."""
    error: str | None
    """The exception, if one was raised."""


class NumericReport(ProgramReport):
    """The errors of a wheel's functions, and the versions that they ran with."""

    torch: str
    triton: str | None
    gpu: str | None
    """The arch of torch's GPU: ``gfx942``, ``sm_90``."""
    backend: str
    """The module that computes: the backend that flash_attn calls, or flash_attention_amd."""
    file: str
    """The path of that module."""
    installed: bool
    """Whether that module belongs to the wheel, and was not installed before."""
    cases: tuple[NumericCase, ...]
    left_out: tuple[str, ...]
    """The names of skipped cases."""
    symbols: dict[str, int]
    """The number of calls of each backend function, such as ``flash_attn_2_cuda.fwd``."""
    dropped: tuple[str, ...]
    """Launch options that the non-AMD GPU test mode dropped."""


def find_numeric_faults(file: str, standard: Tolerance, numbers: NumericReport | str, where: str) -> Iterator[Finding]:
    """Check the numbers of the wheel `file`; `numbers` is an error message if there is no report.

    `where` completes the message: ``on gfx942``.
    """

    def finding(expected: str, found: str, remedy: str = _REMEDY) -> Finding:
        return Finding(file=file, expected=expected, found=found, remedy=remedy)

    if isinstance(numbers, str):
        yield finding(f"attention to run {where}", numbers, f"run the gate again; if it fails again, {_REMEDY}")
        return
    if numbers.backend != standard.module:
        yield finding(f"calls of {standard.module}", numbers.backend, "build the wheel with the backend of the cell")
    elif not numbers.installed:
        yield finding(
            f"{standard.module} of the wheel",
            "another module of this Python",
            "uninstall the other module, and verify again",
        )
    if not numbers.cases:
        yield finding(f"attention to run {where}", "no case")
    for case in numbers.cases:
        if case.error:
            yield finding(f"{case.name} to run {where}", case.error)
        for result, (error, bound) in error_bounds(case, standard).items():
            if not is_within(error, bound):
                expected = f"{result} of {case.name} with an error of at most {_short(bound):g} {where}"
                yield finding(expected, f"{_short(error):g}")


def numeric_gate_result(
    subject: Subject,
    gate: str,
    report: NumericReport | str,
    where: str,
    computed: str,
    limits: Iterable[KnownLimit],
    versions: Mapping[str, str],
) -> GateResult:
    """Return the result of a gate for a report; `report` is an error message if there is no report.

    `where` completes the findings (``on gfx942``), `computed` names the versions in the detail, `limits` were skipped.
    """
    standard = TOLERANCES[subject.cell.backend]
    return GateResult.from_findings(
        gate,
        list(find_numeric_faults(subject.wheel.path.name, standard, report, where)),
        "; ".join([f"{computed}, against float64", *map(str, limits)]),
        versions={"flash-attn payload": payload_sha256(subject.wheel)[:16], **versions},
        figures=worst_errors(report, standard),
    )


def error_bounds(case: NumericCase, standard: Tolerance) -> dict[str, tuple[float, float]]:
    """Return the error and its limit for each result of a case."""
    return {
        name: (error, (standard.output if name == "output" else standard.gradient) * unit)
        for name, (error, unit) in case.errors.items()
    }


def worst_errors(numbers: NumericReport | str, standard: Tolerance) -> dict[str, float]:
    """Return error and limit of the result that is closest to its limit, for each case.

    Numbers have two digits, which hides the differences between processors.
    """
    found: dict[str, float] = {}
    for case in () if isinstance(numbers, str) else numbers.cases:
        short = [(_short(error), _short(bound)) for error, bound in error_bounds(case, standard).values()]
        pairs = [
            pair for pair in short if all(map(math.isfinite, pair)) and pair[1]
        ]  # rounding can overflow to infinity
        if pairs:
            found[f"{case.name} error"], found[f"{case.name} bound"] = max(pairs, key=lambda pair: pair[0] / pair[1])
    return found


def _short(number: float) -> float:
    return float(f"{number:.2g}")
