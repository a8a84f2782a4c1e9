"""Error limits for attention results, relative to a float64 reference, and the known limits of releases.

The error limits are the same on an emulator and on a GPU. limits.yaml has the known limits: gates skip these cases, and
their results say so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from packaging.specifiers import SpecifierSet
from pydantic import TypeAdapter

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.label import Label
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.proofs import PROGRAMS, ProgramReport
from wheelfactory.verify.result import Finding, is_within

NUMBERS_PROGRAM = PROGRAMS / "check_numbers.py"

TIMEOUT_S = 900.0
"""Seconds for a suite on the CPU or on a GPU."""


@dataclass(frozen=True)
class Tolerance:
    """The module that must run the computation, and the allowed errors as multiples of pure rounding error."""

    module: str
    output: float
    gradient: float


# the tolerance of each backend. Source: upstream's tests (tests/test_flash_attn_ck.py and test_flash_attn_triton_amd.py
# of 2.8.3), which compare with torch's result of the same formula in the dtype of the inputs
TOLERANCES = {
    Backend.CK: Tolerance("flash_attn_2_cuda", 4.0, 10.0),
    Backend.TRITON: Tolerance("flash_attn.flash_attn_triton_amd.interface_fa", 2.0, 3.0),
}

# upstream's test module for the kernels of aiter compares as that for its earlier ones
AITER_TOLERANCE = Tolerance("aiter.ops.triton._triton_kernels.flash_attn_triton_amd.interface_v2", 2.0, 3.0)

# the tolerance of flash-attention-amd. Source: upstream's tests/test_flash_attn.py of 2.8.3
FALLBACK_TOLERANCE = Tolerance("flash_attention_amd", 2.0, 3.0)


def find_tolerance(wheel: Cell | Label) -> Tolerance:
    """The tolerance of a flash-attn wheel."""
    return AITER_TOLERANCE if wheel.uses_aiter else TOLERANCES[wheel.backend]


_REMEDY = "remove the combination from matrix.yaml: the kernels do not work with this Triton or compiler"


class NumericCase(ProgramReport):
    """A call in one dtype."""

    name: str
    errors: dict[str, tuple[float, float]]
    """Per result: its largest error, and the error of a reference that rounds each intermediate result to the dtype."""
    option: str = ""
    """The row of options.yaml that the case measures; empty for a call without options."""
    exception: str | None
    """The exception, if one was raised."""
    refused: str | None = None
    """The message, if the package refused the call instead of computing wrong numbers."""
    not_run: str | None = None
    """What the emulator does not know, such as an instruction; the call has no result then."""
    launches: int | None = None
    """The kernels that ran; None if nothing counted them."""
    findings: tuple[str, ...] = ()
    """Accesses that a GPU would hide and the emulator saw: kernel, kind and address."""

    def error(self, refused: Collection[str]) -> str | None:
        """The exception, a refusal of anything but the options `refused`, or the lack of a refusal; None if right.

        Without these, what the emulator saw beside the numbers.
        """
        if self.exception or self.not_run:
            return self.exception
        if bool(self.refused) is not (self.option in refused):
            return self.refused or f"computed, but {self.option} is refused by options.yaml"
        nothing = "no kernel ran" if self.errors and self.launches == 0 else None
        return next(iter(self.findings), nothing)


class NumericReport(ProgramReport):
    """The errors of a wheel's functions, and the versions that they ran with."""

    torch: str
    triton: str | None
    gpu: str | None
    """The arch of torch's GPU: ``gfx942``, ``sm_90``."""
    backend: str
    """The module that ran the computation: the backend that flash_attn calls, or flash_attention_amd."""
    file: str
    """The path of that module."""
    from_wheel: bool
    """Whether that module comes from the wheel, not from an earlier install."""
    cases: tuple[NumericCase, ...]
    left_out: tuple[str, ...]
    """The names of skipped cases."""
    call_counts: dict[str, int]
    """The number of calls of each backend function, such as ``flash_attn_2_cuda.fwd``."""
    dropped: tuple[str, ...]
    """Launch options that the non-AMD GPU test mode dropped."""


def find_numeric_faults(
    file: str, tolerance: Tolerance, report: NumericReport | str, device_phrase: str, refused: Collection[str] = ()
) -> Iterator[Finding]:
    """Check the errors that a run of the wheel `file` reported; `report` is the error message if the program failed.

    `device_phrase` completes the message: ``on gfx942``. `refused` are the options for which the wheel must raise an
    error.
    """

    def finding(expected: str, found: str, remedy: str = _REMEDY) -> Finding:
        return Finding(file, expected, found, remedy)

    if isinstance(report, str):
        yield finding(f"attention to run {device_phrase}", report, f"run the gate again; if it fails again, {_REMEDY}")
        return
    if report.backend != tolerance.module:
        yield finding(f"calls of {tolerance.module}", report.backend, "build the wheel with the backend of the cell")
    elif not report.from_wheel:
        other, remedy = "a different copy installed in this Python", "uninstall that copy, then verify again"
        yield finding(f"{tolerance.module} from the wheel", other, remedy)
    if not report.cases:
        yield finding(f"attention to run {device_phrase}", "no case")
    for case in report.cases:
        if wrong := case.error(refused):
            yield finding(f"{case.name} to run {device_phrase}", wrong)
        for result, (error, bound) in error_bounds(case, tolerance).items():
            if not is_within(error, bound):
                expected = f"{result} of {case.name} with an error of at most {_rounded(bound):g} {device_phrase}"
                yield finding(expected, f"{_rounded(error):g}")


def refusals(cases: Iterable[NumericCase]) -> Iterator[str]:
    """Yield which options the package refused, for the detail of a result; nothing if it computed every case."""
    if refused := dict.fromkeys(case.option for case in cases if case.refused):
        yield f"raises an error for {'; '.join(refused)}"


def error_bounds(case: NumericCase, tolerance: Tolerance) -> dict[str, tuple[float, float]]:
    """Return the error and its limit for each result of a case."""
    return {
        name: (error, (tolerance.output if name == "output" else tolerance.gradient) * unit)
        for name, (error, unit) in case.errors.items()
    }


def worst_errors(report: NumericReport | str, tolerance: Tolerance) -> dict[str, float]:
    """Return, for each case, the error and the limit of the result that is closest to its limit."""
    # two digits hide the differences between processors
    found: dict[str, float] = {}
    for case in () if isinstance(report, str) else report.cases:
        short = [(_rounded(error), _rounded(bound)) for error, bound in error_bounds(case, tolerance).values()]
        # rounding can overflow to infinity
        pairs = [pair for pair in short if all(map(math.isfinite, pair)) and pair[1]]
        if pairs:
            found[f"{case.name} error"], found[f"{case.name} bound"] = max(pairs, key=lambda pair: pair[0] / pair[1])
    return found


def _rounded(number: float) -> float:
    """Round to two digits."""
    return float(f"{number:.2g}")


@dataclass(frozen=True)
class KnownLimit:
    """Cases whose backward pass fails with some release, Triton and arch."""

    cases: str
    """An fnmatch pattern for the names of cases."""
    flash_attn: str
    """A version specifier of releases."""
    reason: str
    """What is skipped and why, shown to users."""
    triton: str = ""
    """A version specifier of Triton; empty matches any."""
    archs: frozenset[str] = frozenset()
    """Empty matches any arch, and runs without an arch."""
    skip_forward: bool = False
    """Whether the forward pass fails too."""

    @property
    def argument(self) -> str:
        """The argument for the programs; a leading ``!`` skips the forward pass too."""
        return f"!{self.cases}" if self.skip_forward else self.cases

    def applies(self, flash_attn: str, triton: str, arch: str | None) -> bool:
        """Whether these cases fail with a release, a Triton version and an arch."""
        if self.archs and arch not in self.archs:
            return False
        return SpecifierSet(self.flash_attn).contains(flash_attn) and SpecifierSet(self.triton).contains(triton)

    def __str__(self) -> str:
        return f"skipped: {self.reason}"


_TABLE = Path(__file__).with_name("limits.yaml").read_text(encoding="utf-8")
LIMITS = TypeAdapter(tuple[KnownLimit, ...]).validate_python(yaml.safe_load(_TABLE))


def find_cell_limits(subject: Subject, arch: str | None = None) -> tuple[KnownLimit, ...]:
    """Return the limits of a wheel with its cell's Triton; without `arch`, only those for every arch."""
    cell = subject.cell
    if cell.backend is not Backend.TRITON:
        return ()
    return find_limits(cell.flash_attn, subject.triton, arch)


def find_limits(flash_attn: str, triton: str, arch: str | None) -> tuple[KnownLimit, ...]:
    """Select the limits that apply to a release, a Triton version and an arch (None: only limits for every arch)."""
    return tuple(limit for limit in LIMITS if limit.applies(flash_attn, triton, arch))
