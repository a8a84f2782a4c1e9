"""The validation report, its JSON file and its text: what ran, on which hardware, with what errors. Cheap to import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.label import Label
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.verify.result import Status

VALIDATION_FORMAT: Literal["wheelfactory-validation/1"] = "wheelfactory-validation/1"
"""The `format` key of the file. Reports of this number exist outside: a changed key needs a new number."""

_HINT = "name a report that `wheelfactory validate WHEEL --json` printed"


class ValidatedPackage(FrozenModel):
    """The package that was validated."""

    project: str
    """The normalized name: ``flash-attn``, or ``flash-attention-amd``."""
    version: str
    """With its label."""
    filename: str | None = None
    """The wheel file; None for a package that was installed already."""
    sha256: str | None = None
    """The sha256 of the wheel; for an installed package only if pip recorded it."""
    cell: str | None = None
    label: str | None = None
    offload_archs: tuple[str, ...] = ()
    """The archs in the build record; empty without one."""


class Hardware(FrozenModel):
    """The GPU that computed; all None without one."""

    vendor: Literal["amd", "nvidia"] | None = None
    device: str | None = None
    """The product name, such as ``AMD Instinct MI300X``."""
    arch: str | None = None
    """``gfx942``, or ``sm_90`` for NVIDIA."""

    def text(self, none: str) -> str:
        """``AMD Instinct MI300X (gfx942)``; or `none` without a GPU."""
        return f"{self.device} ({self.arch})" if self.device else none


class Software(FrozenModel):
    """The versions that the package ran with."""

    python: str
    torch: str
    hip: str | None = None
    cuda: str | None = None
    triton: str | None = None

    @property
    def built_with(self) -> list[str]:
        """The versions of HIP, CUDA and Triton that are present, such as ``HIP 6.4.43482``."""
        found = {"HIP": self.hip, "CUDA": self.cuda, "Triton": self.triton}
        return [f"{name} {version}" for name, version in found.items() if version]


class ValidationCheck(FrozenModel):
    """One check beside the numbers, such as: the backend of the label is the backend that was called."""

    name: str
    status: Status
    detail: str = ""


class ResultError(FrozenModel):
    """The largest difference of a result from float64, and its bound."""

    result: str
    """``output``, ``dq``, ``dk`` or ``dv``."""
    error: float
    bound: float


class ValidationCase(FrozenModel):
    """One attention call, forward and backward."""

    name: str
    status: Status
    errors: tuple[ResultError, ...] = ()
    detail: str = ""
    """The exception, or why the case did not run."""


class Validation(FrozenModel):
    """The whole report, as `wheelfactory validate --json` prints it."""

    format: Literal["wheelfactory-validation/1"]
    factory: str
    """The version of the factory."""
    time: AwareDatetime
    """UTC."""
    validated: ValidatedPackage
    hardware: Hardware
    software: Software
    dropped_launch_options: tuple[str, ...] | None = None
    """AMD launch options that the test mode for non-AMD GPUs dropped; None outside this mode."""
    symbols: dict[str, int] = Field({})
    """Calls of each backend function, such as ``flash_attn_2_cuda.fwd``."""
    checks: tuple[ValidationCheck, ...] = ()
    cases: tuple[ValidationCase, ...] = ()

    @property
    def checks_and_cases(self) -> tuple[ValidationCheck | ValidationCase, ...]:
        """The checks, then the cases."""
        return (*self.checks, *self.cases)

    @property
    def failed(self) -> bool:
        """Whether any check or case failed."""
        return any(part.status is Status.FAILED for part in self.checks_and_cases)


def read_validation(path: Path) -> Validation:
    """Read a report. Raises `InputError` if the file is unreadable or not a report of this format."""
    data = read_file(path, InputError("cannot read the report", str(path), _HINT))
    return parse_model(Validation, data, InputError("not a validation report", str(path), _HINT))


def validation_lines(validation: Validation) -> Iterator[str]:
    """The package, the software, each check and case, and the verdict as the last line."""
    validated = validation.validated
    yield f"{validated.project} {validated.version}"
    for name, text in _facts(validation):
        yield f"  {name:<9} {text}"
    for check in validation.checks:
        yield f"  {check.status!s:<8}  {check.name}" + (f" ({check.detail})" if check.detail else "")
    width = max((len(case.name) for case in validation.cases), default=0)
    for case in validation.cases:  # the largest error of each result, and its bound
        errors = ", ".join(f"{error.result} {error.error:.1e} of {error.bound:.1e}" for error in case.errors)
        yield f"  {case.status!s:<8}  {case.name:<{width}}  {'; '.join(filter(None, (errors, case.detail)))}"
    yield verdict(validation)


def _facts(validation: Validation) -> Iterator[tuple[str, str]]:
    validated, software, mode = validation.validated, validation.software, validation.dropped_launch_options
    label = Label.parse(validated.label) if validated.label else None
    facts = {
        "wheel": validated.filename,
        "sha256": validated.sha256,
        "cell": validated.cell,
        "label": label and label.describe(label.backend.display_name),
        "archs": ", ".join(validated.offload_archs),
    }
    yield from ((name, text) for name, text in facts.items() if text)
    yield "hardware", validation.hardware.text("no GPU computed")
    yield "software", ", ".join([f"Python {software.python}", f"torch {software.torch}", *software.built_with])
    if mode is not None:
        yield "mode", f"non-AMD GPU; dropped at launch: {', '.join(mode) or 'nothing'}"
    for symbol, count in sorted(validation.symbols.items()):
        yield "called", f"{symbol}, {count} times"


def verdict(validation: Validation) -> str:
    """One line: failed, not computed on a GPU, test mode, or validated."""
    hardware, cases = validation.hardware, validation.cases
    count = sum(case.status is Status.NOT_RUN for case in cases)
    gpu, not_run = hardware.text(""), f"; {count} of {len(cases)} cases not run" if count else ""
    if validation.failed:
        checks = _count("checks", [check.status for check in validation.checks])
        failures = filter(None, (checks, _count("cases", [case.status for case in cases])))
        return f"refused: {' and '.join(failures)} failed"
    if hardware.device is None:
        emulated = [check.detail.partition(":")[0] for check in validation.checks if check.name == "emulation"]
        done = f"{emulated[0]} without a failure" if cases and emulated else "no failure"
        return f"{done}, but nothing was computed on a GPU{not_run}"
    if validation.dropped_launch_options is not None:
        return f"computed on {gpu} in the non-AMD GPU test mode: this proves nothing about AMD GPUs{not_run}"
    return f"validated on {gpu}{not_run}"


def _count(kind: str, found: Sequence[Status]) -> str:
    failed = found.count(Status.FAILED)
    return f"{failed} of {len(found)} {kind}" if failed else ""
