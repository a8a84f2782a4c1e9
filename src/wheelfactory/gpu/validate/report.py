"""The report of a validation, and as a file: what ran, on which hardware, and how far off it was; light to import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import AwareDatetime, Field

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.verify.result import Status

if TYPE_CHECKING:
    from wheelfactory.gpu.torch_python import TorchPython  # which readers of reports need not

VALIDATION_FORMAT: Literal["wheelfactory-validation/1"] = "wheelfactory-validation/1"
"""What the file says that it is; another number is another form."""

_HINT = "name a file with what `wheelfactory validate WHEEL --json` printed"


class ValidatedPackage(FrozenModel):
    """The flash-attn that was run."""

    project: str
    """The normalized name: ``flash-attn``, or ``flash-attention-amd``."""
    version: str
    """With its label."""
    filename: str | None = None
    """The wheel, where it is known: it is not for an installed one."""
    sha256: str | None = None
    """Of the wheel; for an installed one only what pip recorded of the archive."""
    cell: str | None = None
    label: str | None = None
    offload_archs: tuple[str, ...] = ()
    """What the build record promises; empty where there is none."""


class Hardware(FrozenModel):
    """The GPU that it ran on; all None where there is none."""

    vendor: Literal["amd", "nvidia"] | None = None
    device: str | None = None
    """Its name, such as ``AMD Instinct MI300X``."""
    arch: str | None = None
    """``gfx942``, or ``sm_90`` for one of NVIDIA."""

    def text(self, none: str) -> str:
        """``AMD Instinct MI300X (gfx942)``; or `none` without a GPU."""
        return f"{self.device} ({self.arch})" if self.device else none


class Software(FrozenModel):
    """What it ran with."""

    python: str
    torch: str
    hip: str | None = None
    cuda: str | None = None
    triton: str | None = None

    @property
    def built_with(self) -> list[str]:
        """``HIP 6.4.43482``, and the like of CUDA and Triton, as far as there are any."""
        found = {"HIP": self.hip, "CUDA": self.cuda, "Triton": self.triton}
        return [f"{name} {version}" for name, version in found.items() if version]


def as_hardware(python: TorchPython) -> Hardware:
    """The GPU that its torch computes on."""
    return Hardware(vendor=python.vendor, device=python.device, arch=python.arch)


def as_software(python: TorchPython) -> Software:
    """What a program finds in that Python."""
    return Software(python=python.version, torch=python.torch, hip=python.hip, cuda=python.cuda, triton=python.triton)


class ValidationCheck(FrozenModel):
    """One thing that is asked beside the numbers, such as that the backend of the label is the one that was called."""

    name: str
    status: Status
    detail: str = ""


class ResultError(FrozenModel):
    """How far a result is from the one in float64, and how far it may be."""

    result: str
    """``output``, ``dq``, ``dk`` or ``dv``."""
    error: float
    bound: float


class ValidationCase(FrozenModel):
    """One call, forward and backward."""

    name: str
    status: Status
    errors: tuple[ResultError, ...] = ()
    detail: str = ""
    """What was raised, or why it was not run."""


class Validation(FrozenModel):
    """All of it; `wheelfactory validate --json` prints one."""

    format: Literal["wheelfactory-validation/1"]
    factory: str
    """The version of the factory."""
    time: AwareDatetime
    """UTC."""
    validated: ValidatedPackage
    hardware: Hardware
    software: Software
    dropped_launch_options: tuple[str, ...] | None = None
    """The launch options that were dropped so that kernels for AMD run on the GPU of another vendor; None if this is
    not that test mode."""
    symbols: dict[str, int] = Field({})
    """The functions of the backend that were called, and how often: ``flash_attn_2_cuda.fwd``."""
    checks: tuple[ValidationCheck, ...] = ()
    cases: tuple[ValidationCase, ...] = ()

    @property
    def checks_and_cases(self) -> tuple[ValidationCheck | ValidationCase, ...]:
        """The checks, then the cases."""
        return (*self.checks, *self.cases)

    @property
    def failed(self) -> bool:
        """Whether a number is wrong, or what runs is not what the wheel says."""
        return any(part.status is Status.FAILED for part in self.checks_and_cases)


def read_validation(path: Path) -> Validation:
    """A report as `wheelfactory validate --json` prints it.

    Raises `InputError` with the place for a file that cannot be read, is no report, or is one of another format.
    """
    data = read_file(path, InputError("cannot read the report", str(path), _HINT))
    return parse_model(Validation, data, InputError("not a report", str(path), _HINT))
