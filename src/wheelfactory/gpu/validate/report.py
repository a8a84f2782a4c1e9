"""The validation report and its JSON file: what ran, on which hardware, with what errors. Cheap to import."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
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
