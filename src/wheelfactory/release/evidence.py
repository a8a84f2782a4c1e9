"""Evidence: what the manifest keeps of a validation on a GPU, and what it says about GPUs of AMD. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import AwareDatetime, Field, model_validator

from wheelfactory.core.errors import InputError
from wheelfactory.core.gpus import arch_sort_key
from wheelfactory.core.models import FrozenModel
from wheelfactory.gpu.validate.report import Validation, ValidationCase
from wheelfactory.verify.result import Status, is_within

_AGAIN = "publish the report of `wheelfactory validate WHEEL --json` that ended with exit code 0 on a GPU"


class NearestResult(FrozenModel, allow_inf_nan=False):
    """The result of all cases that comes nearest to its bound."""

    case: str
    result: str
    """``output``, ``dq``, ``dk`` or ``dv``."""
    error: float
    bound: float

    @model_validator(mode="after")
    def _is_near(self) -> NearestResult:
        if not is_within(self.error, self.bound):
            raise ValueError(f"{self.error} is not within {self.bound}")
        return self


class Evidence(FrozenModel, allow_inf_nan=False):
    """A validation in which a GPU computed, and no number was wrong."""

    vendor: Literal["amd", "nvidia"]
    device: str
    """Its name, such as ``AMD Instinct MI300X``."""
    arch: str
    """``gfx942``, or ``sm_90`` for one of NVIDIA."""
    torch: str
    hip: str | None = None
    cuda: str | None = None
    triton: str | None = None
    modules: tuple[str, ...] = Field(min_length=1)
    """Those whose functions were called, such as ``flash_attn_2_cuda``."""
    cases: int = Field(ge=1)
    """How many passed."""
    not_run: int = Field(default=0, ge=0)
    """How many did not run; the report says why of each."""
    nearest: NearestResult
    time: AwareDatetime
    """UTC."""
    factory: str
    """The version of the factory that validated."""
    dropped_launch_options: tuple[str, ...] | None = None
    """The launch options that the non-AMD GPU test mode dropped; None if this is not that mode."""

    @property
    def is_test_mode(self) -> bool:
        """Whether the kernels ran in the test mode, on a GPU that they are not made for."""
        return self.dropped_launch_options is not None

    @property
    def is_amd_proof(self) -> bool:
        """Whether it says anything about GPUs of AMD: no other vendor's does, nor the test mode."""
        return self.vendor == "amd" and not self.is_test_mode

    @property
    def key(self) -> tuple[str, bool]:
        """A row has one piece of evidence for each."""
        return self.arch, self.is_test_mode


def as_evidence(validation: Validation) -> Evidence:
    """What a manifest row keeps of a validation. Raises `InputError` with the reason if it is no evidence."""
    reason = next(_doubts(validation), None)
    hardware, software, validated = validation.hardware, validation.software, validation.validated
    if reason or not (hardware.vendor and hardware.device and hardware.arch):
        named = validated.filename or f"{validated.project} {validated.version}"
        where = f" on {hardware.device}" if hardware.device else ""
        raise InputError("no evidence", f"{named}{where} ({reason or 'its GPU has no name or arch'})", _AGAIN)
    passed = _passed(validation)
    case, nearest = max(
        ((case, error) for case in passed for error in case.errors),
        key=lambda found: found[1].error / found[1].bound if found[1].bound else 0.0,
    )
    return Evidence(
        vendor=hardware.vendor,
        device=hardware.device,
        arch=hardware.arch.partition(":")[0],  # without features such as :xnack-
        torch=software.torch,
        hip=software.hip,
        cuda=software.cuda,
        triton=software.triton,
        modules=tuple(sorted({symbol.rpartition(".")[0] for symbol in validation.symbols})),
        cases=len(passed),
        not_run=len(validation.cases) - len(passed),
        nearest=NearestResult(case=case.name, result=nearest.result, error=nearest.error, bound=nearest.bound),
        time=validation.time,
        factory=validation.factory,
        dropped_launch_options=validation.dropped_launch_options,
    )


def _doubts(validation: Validation) -> Iterator[str]:
    """Why a validation says nothing about its wheel on a GPU."""
    yield from (f"failed: {part.name}" for part in validation.checks_and_cases if part.status is Status.FAILED)
    for case in validation.cases:
        if case.status is Status.NOT_RUN and not case.detail:
            yield f"not run, and no reason given: {case.name}"
        # a file may say anything, so its numbers are asked
        right = case.errors and all(is_within(error.error, error.bound) for error in case.errors)
        if case.status is Status.PASSED and not right:
            yield f"said to have passed, and its numbers do not: {case.name}"
    vendor, foreign = validation.hardware.vendor, validation.dropped_launch_options is not None
    if vendor is None:
        yield "no GPU computed"
    if not _passed(validation):
        yield "no case was computed"
    if not validation.symbols:
        yield "no function was seen to be called"
    if validation.validated.sha256 is None:
        yield "it does not say of which file: validate the wheel and not what is installed"
    if vendor == "amd" and foreign:
        yield "the non-AMD GPU test mode proves nothing on a GPU of AMD"
    # the fallback, which has no label, runs on every GPU
    if vendor == "nvidia" and not foreign and validation.validated.label is not None:
        yield "kernels for AMD run on another GPU in the non-AMD GPU test mode alone"


def _passed(validation: Validation) -> list[ValidationCase]:
    return [case for case in validation.cases if case.status is Status.PASSED]


def merge_evidence(held: Iterable[Evidence], piece: Evidence) -> tuple[Evidence, ...]:
    """The evidence of a row with one piece more, which takes the place of the one with its arch and mode.

    What proves something comes first.
    """
    kept = (other for other in held if other.key != piece.key)
    return tuple(
        sorted([*kept, piece], key=lambda one: (not one.is_amd_proof, arch_sort_key(one.arch), one.is_test_mode))
    )
