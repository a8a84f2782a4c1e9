"""The report of a validation -> lines for a person, and the verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wheelfactory.core.label import Label
from wheelfactory.gpu.validate.report import Validation, ValidationCase
from wheelfactory.verify.result import Status


def validation_lines(validation: Validation) -> Iterator[str]:
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
    validated, software, mode = validation.validated, validation.software, validation.dropped_launch_options
    label = Label.parse(validated.label) if validated.label else None
    about = {
        "wheel": validated.filename,
        "sha256": validated.sha256,
        "cell": validated.cell,
        "label": label and f"ROCm {label.rocm_version}, torch {label.torch_version}, {label.backend.display_name}",
        "archs": ", ".join(validated.offload_archs),
    }
    yield from ((name, text) for name, text in about.items() if text)
    yield "hardware", validation.hardware.text("no GPU computed")
    yield "software", ", ".join([f"Python {software.python}", f"torch {software.torch}", *software.built_with])
    if mode is not None:
        yield "mode", f"foreign GPU; dropped at launch: {', '.join(mode) or 'nothing'}"
    for symbol, count in sorted(validation.symbols.items()):
        yield "called", f"{symbol}, {count} times"


def _cases(cases: Sequence[ValidationCase]) -> Iterator[str]:
    """The greatest error of each result of a case, and the greatest that it may have."""
    width = max((len(case.name) for case in cases), default=0)
    for case in cases:
        errors = ", ".join(f"{error.result} {error.error:.1e} of {error.bound:.1e}" for error in case.errors)
        yield f"  {case.status!s:<8}  {case.name:<{width}}  {'; '.join(filter(None, (errors, case.detail)))}"


def verdict(validation: Validation) -> str:
    """What this says about the package, in one line."""
    hardware, cases = validation.hardware, validation.cases
    gpu = hardware.text("")
    if validation.failed:
        checks = _count("checks", [check.status for check in validation.checks])
        wrong = filter(None, (checks, _count("cases", [case.status for case in cases])))
        return f"refused: {' and '.join(wrong)} failed"
    if hardware.device is None:
        return f"nothing is wrong, and no number was computed on a GPU{_left(cases)}"
    if validation.dropped_launch_options is not None:
        return f"computed on {gpu} in the non-AMD GPU test mode: this proves nothing about AMD GPUs{_left(cases)}"
    return f"validated on {gpu}{_left(cases)}"


def _count(kind: str, found: Sequence[Status]) -> str:
    failed = found.count(Status.FAILED)
    return f"{failed} of {len(found)} {kind}" if failed else ""


def _left(cases: Sequence[ValidationCase]) -> str:
    left = [case for case in cases if case.status is Status.NOT_RUN]
    return f"; {len(left)} of {len(cases)} cases not run" if left else ""
