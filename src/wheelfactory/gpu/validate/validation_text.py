"""Render a validation report as text, with its verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wheelfactory.core.label import Label
from wheelfactory.gpu.validate.report import Validation, ValidationCase
from wheelfactory.verify.result import Status


def validation_lines(validation: Validation) -> Iterator[str]:
    """The package, the software, each check and case, and the verdict as the last line."""
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


def _cases(cases: Sequence[ValidationCase]) -> Iterator[str]:
    """The largest error of each result, and its bound."""
    width = max((len(case.name) for case in cases), default=0)
    for case in cases:
        errors = ", ".join(f"{error.result} {error.error:.1e} of {error.bound:.1e}" for error in case.errors)
        yield f"  {case.status!s:<8}  {case.name:<{width}}  {'; '.join(filter(None, (errors, case.detail)))}"


def verdict(validation: Validation) -> str:
    """One line: failed, not computed on a GPU, test mode, or validated."""
    hardware, cases = validation.hardware, validation.cases
    gpu, not_run = hardware.text(""), _not_run_text(cases)
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


def _not_run_text(cases: Sequence[ValidationCase]) -> str:
    not_run = [case for case in cases if case.status is Status.NOT_RUN]
    return f"; {len(not_run)} of {len(cases)} cases not run" if not_run else ""
