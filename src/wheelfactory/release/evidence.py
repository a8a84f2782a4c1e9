"""Evidence: the part of a GPU validation that a manifest row keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import AwareDatetime, Field, model_validator

from wheelfactory.core.errors import InputError
from wheelfactory.core.gpus import arch_sort_key, without_features
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.published import is_amd_proof
from wheelfactory.gpu.validation_report import Validation, ValidationCase
from wheelfactory.verify.result import Status, is_within

_AGAIN = "add a report of `wheelfactory validate WHEEL --json` that ended with exit code 0 on a GPU"


class NearestResult(FrozenModel, allow_inf_nan=False):
    """The result that comes nearest to its bound, over all cases."""

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
    """A validation in which a GPU computed every result within its bound. Field names are keys of published rows."""

    vendor: Literal["amd", "nvidia"]
    device: str
    """The product name, such as ``AMD Instinct MI300X``."""
    arch: str
    """``gfx942``, or ``sm_90`` for NVIDIA."""
    torch: str
    hip: str | None = None
    cuda: str | None = None
    triton: str | None = None
    modules: tuple[str, ...] = Field(min_length=1)
    """The modules whose functions were called, such as ``flash_attn_2_cuda``."""
    cases: int = Field(ge=1)
    """Number of cases that passed."""
    not_run: int = Field(default=0, ge=0)
    """Number of cases that did not run; the report has the reasons."""
    nearest: NearestResult
    time: AwareDatetime
    """UTC."""
    factory: str
    """The version of the factory that validated the wheel."""
    dropped_launch_options: tuple[str, ...] | None = None
    """The launch options that the non-AMD GPU test mode dropped; None if this is not that mode."""

    @property
    def is_test_mode(self) -> bool:
        """Whether the kernels ran in the test mode for non-AMD GPUs."""
        return self.dropped_launch_options is not None

    @property
    def is_amd_proof(self) -> bool:
        """Whether this counts for AMD GPUs: only an AMD GPU outside the test mode does."""
        return is_amd_proof(self.vendor, self.dropped_launch_options)

    @property
    def key(self) -> tuple[str, bool]:
        """Arch and mode. A row keeps one piece of evidence for each key."""
        return self.arch, self.is_test_mode


def as_evidence(validation: Validation) -> Evidence:
    """Reduce a validation to evidence. Raises `InputError` with the reason if it proves nothing about its wheel."""
    reason = next(_objections(validation), None)
    hardware, validated = validation.hardware, validation.validated
    if reason or not (hardware.vendor and hardware.device and hardware.arch):
        named = validated.filename or f"{validated.project} {validated.version}"
        where = f" on {hardware.device}" if hardware.device else ""
        raise InputError("not evidence", f"{named}{where} ({reason or 'the GPU has no name or arch'})", _AGAIN)
    passed = _passed(validation)
    shares = [(one.error / one.bound if one.bound else 0.0, case, one) for case in passed for one in case.errors]
    _, case, nearest = max(shares, key=lambda found: found[0])
    return Evidence(
        vendor=hardware.vendor,
        device=hardware.device,
        arch=without_features(hardware.arch),
        **validation.software.model_dump(exclude={"python"}),
        modules=tuple(sorted({symbol.rpartition(".")[0] for symbol in validation.symbols})),
        cases=len(passed),
        not_run=len(validation.cases) - len(passed),
        nearest=NearestResult(case=case.name, result=nearest.result, error=nearest.error, bound=nearest.bound),
        **validation.model_dump(include={"time", "factory", "dropped_launch_options"}),
    )


def _objections(validation: Validation) -> Iterator[str]:
    """The reasons why a validation is not evidence."""
    yield from (f"failed: {part.name}" for part in validation.checks_and_cases if part.status is Status.FAILED)
    for case in validation.cases:
        if case.status is Status.NOT_RUN and not case.detail:
            yield f"not run, without a reason: {case.name}"
        # a report file can claim anything, so compare its numbers again
        within = case.errors and all(is_within(error.error, error.bound) for error in case.errors)
        if case.status is Status.PASSED and not within:
            yield f"marked as passed, but outside its bounds: {case.name}"
    vendor, test_mode = validation.hardware.vendor, validation.dropped_launch_options is not None
    if vendor is None:
        yield "no GPU computed"
    if not _passed(validation):
        yield "no case was computed"
    if not validation.symbols:
        yield "no backend function was called"
    if validation.validated.sha256 is None:
        yield "it does not name a file: validate the wheel, not the installed package"
    if vendor == "amd" and test_mode:
        yield "the test mode for non-AMD GPUs proves nothing on an AMD GPU"
    # the fallback, which has no label, runs on every GPU
    if vendor == "nvidia" and not test_mode and validation.validated.label is not None:
        yield "AMD kernels run on another GPU only in the test mode"


def _passed(validation: Validation) -> list[ValidationCase]:
    return [case for case in validation.cases if case.status is Status.PASSED]


def merge_evidence(*pieces: Evidence) -> tuple[Evidence, ...]:
    """The newest piece of each key; of equal times the last one given. Proof for AMD comes first."""
    newest = {piece.key: piece for piece in sorted(pieces, key=lambda piece: piece.time)}
    return tuple(sorted(newest.values(), key=lambda one: (not one.is_amd_proof, arch_sort_key(one.arch), one.key)))
