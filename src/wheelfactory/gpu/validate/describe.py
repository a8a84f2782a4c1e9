"""The report of a validation -> lines for a person, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wheelfactory.core.label import Label
from wheelfactory.gpu.validate.report import Case, Validated, Validation
from wheelfactory.verify.result import Status


def describe(validation: Validation) -> Iterator[str]:
    """What was validated, with what, each check and case, and the verdict as the last line."""
    validated = validation.validated
    yield f"{validated.project} {validated.version}"
    for name, text in _facts(validation):
        yield f"  {name:<9} {text}"
    for check in validation.checks:
        yield f"  {check.status!s:<8}  {check.name}" + (f" ({check.detail})" if check.detail else "")
    yield from _cases(validation.cases)
    yield verdict(validation)


def _facts(validation: Validation) -> Iterator[tuple[str, str]]:
    hardware, mode = validation.hardware, validation.dropped_launch_options
    yield from _about(validation.validated)
    yield "hardware", f"{hardware.device} ({hardware.arch})" if hardware.device else "no GPU computed"
    yield "software", ", ".join(_software(validation))
    if mode is not None:
        yield "mode", f"foreign GPU; dropped at launch: {', '.join(mode) or 'nothing'}"
    for symbol, count in sorted(validation.symbols.items()):
        yield "called", f"{symbol}, {count} times"


def _about(validated: Validated) -> Iterator[tuple[str, str]]:
    if validated.filename:
        yield "wheel", validated.filename
    if validated.sha256:
        yield "sha256", validated.sha256
    if validated.cell:
        yield "cell", validated.cell
    if validated.label:
        label = Label.parse(validated.label)
        yield "label", f"ROCm {label.rocm_version}, torch {label.torch_version}, {label.backend.spoken}"
    if validated.offload_archs:
        yield "archs", ", ".join(validated.offload_archs)


def _software(validation: Validation) -> Iterator[str]:
    software = validation.software
    yield f"Python {software.python}"
    yield f"torch {software.torch}"
    yield from (
        f"{name} {version}"
        for name, version in (("HIP", software.hip), ("CUDA", software.cuda), ("Triton", software.triton))
        if version
    )


def _cases(cases: Sequence[Case]) -> Iterator[str]:
    """The greatest error of each result of a case, and the greatest that it may have."""
    width = max((len(case.name) for case in cases), default=0)
    for case in cases:
        errors = ", ".join(f"{error.result} {error.error:.1e} of {error.bound:.1e}" for error in case.errors)
        yield f"  {case.status!s:<8}  {case.name:<{width}}  {'; '.join(filter(None, (errors, case.detail)))}"


def verdict(validation: Validation) -> str:
    """What this says about the package, in one line."""
    hardware, cases = validation.hardware, validation.cases
    gpu = f"{hardware.device} ({hardware.arch})"
    if validation.failed:
        checks = _count("checks", [check.status for check in validation.checks])
        wrong = filter(None, (checks, _count("cases", [case.status for case in cases])))
        return f"refused: {' and '.join(wrong)} failed"
    if hardware.device is None:
        return f"nothing is wrong, and no number was computed on a GPU{_left(cases)}"
    if validation.dropped_launch_options is not None:
        return f"computed on {gpu} in the foreign-GPU test mode: this proves nothing about AMD GPUs{_left(cases)}"
    return f"validated on {gpu}{_left(cases)}"


def _count(kind: str, found: Sequence[Status]) -> str:
    failed = found.count(Status.FAILED)
    return f"{failed} of {len(found)} {kind}" if failed else ""


def _left(cases: Sequence[Case]) -> str:
    left = [case for case in cases if case.status is Status.NOT_RUN]
    return f"; {len(left)} of {len(cases)} cases not run" if left else ""
