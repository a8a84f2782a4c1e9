"""Check the facts of an installation, and compare computed numbers with their bounds. Pure.

The bounds are the gates' bounds (`verify.accuracy`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from wheelfactory.core.cell import same_rocm
from wheelfactory.core.label import name_aiter
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validate.installed import InstalledPackage
from wheelfactory.gpu.validate.report import ResultError, ValidationCase, ValidationCheck
from wheelfactory.verify import accuracy
from wheelfactory.verify.accuracy import (
    AITER_TOLERANCE,
    FALLBACK_TOLERANCE,
    TOLERANCES,
    NumericReport,
    Tolerance,
    find_tolerance,
)
from wheelfactory.verify.limits import KnownLimit
from wheelfactory.verify.result import Status, is_within

_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"


def check_installed(
    installed: InstalledPackage, python: TorchPython | None, *, non_amd_gpu: bool
) -> Iterator[ValidationCheck]:
    """Check that the installed files are intact and fit `python`; None if a stand-in torch computed."""
    yield _files(installed)
    if installed.is_fallback:
        yield _torch(installed, python)
        return
    yield _record(installed)
    yield _torch(installed, python)
    yield _rocm(installed, python, non_amd_gpu=non_amd_gpu)
    yield _arch(installed, python, non_amd_gpu=non_amd_gpu)


def check_calls(
    installed: InstalledPackage, numbers: NumericReport | None, *, elsewhere: bool
) -> Iterator[ValidationCheck]:
    """Check that the functions called are the installed ones. `numbers` is None if nothing ran.

    With `elsewhere`, the wheel ran in a second environment, so RECORD of this installation does not list its files.
    """
    if not installed.is_fallback:
        yield _backend(installed, numbers)
    yield _module(installed, numbers, elsewhere=elsewhere)


def made_check(name: str, passed: bool, detail: str) -> ValidationCheck:
    """The result of a check that ran."""
    return ValidationCheck(name=name, status=Status.PASSED if passed else Status.FAILED, detail=detail)


def skipped_check(name: str, why: str) -> ValidationCheck:
    """A check that did not run, and why."""
    return ValidationCheck(name=name, status=Status.NOT_RUN, detail=why)


def _files(installed: InstalledPackage) -> ValidationCheck:
    files, mismatches = installed.distribution.files, installed.distribution.record_mismatches
    if files is None:
        return skipped_check("files", "the installation has no RECORD")
    more = f" and {len(mismatches) - 1} more" if len(mismatches) > 1 else ""
    detail = f"{mismatches[0]}{more}" if mismatches else f"{len(files)} agree with RECORD"
    return made_check("files", not mismatches, detail)


def _record(installed: InstalledPackage) -> ValidationCheck:
    record, label = installed.record, installed.distribution.version.partition("+")[2]
    if record is None and installed.label is None:
        return skipped_check("build record", "missing: not a finished wheel of this factory")
    if record is None:
        return made_check("build record", False, f"missing or unreadable, but the version has the label {label}")
    if record.label != label:
        return made_check(
            "build record", False, f"for {record.label}, but the version has the label {label or '(none)'}"
        )
    return made_check("build record", True, record.cell)


def _torch(installed: InstalledPackage, python: TorchPython | None) -> ValidationCheck:
    wanted = installed.torch
    if python is None:
        return skipped_check("torch", "a stand-in torch computed")
    if wanted is None:
        return skipped_check("torch", "the package requires none")
    fits = wanted.specifier.contains(python.torch, prereleases=True)
    return made_check("torch", fits, f"{python.torch}, requires {wanted}")


def _rocm(installed: InstalledPackage, python: TorchPython | None, *, non_amd_gpu: bool) -> ValidationCheck:
    label = installed.label
    if non_amd_gpu:
        return skipped_check("ROCm", "not an AMD GPU")
    if label is None:
        return skipped_check("ROCm", "the version has no label")
    if python is None or python.hip is None:
        return skipped_check("ROCm", "torch is not built for ROCm")
    wanted = label.rocm_version
    return made_check(
        "ROCm", same_rocm(python.hip, wanted), f"torch has HIP {python.hip}, the label requires ROCm {wanted}"
    )


def _arch(installed: InstalledPackage, python: TorchPython | None, *, non_amd_gpu: bool) -> ValidationCheck:
    archs = installed.record.offload_archs if installed.record else ()
    if non_amd_gpu:
        return skipped_check("arch", "not an AMD GPU")
    if python is None or python.vendor != "amd":
        return skipped_check("arch", "torch sees no AMD GPU")
    if not archs:
        return skipped_check("arch", "no build record lists the supported archs")
    return made_check("arch", python.arch in archs, f"{python.arch}; supported: {', '.join(archs)}")


def _backend(installed: InstalledPackage, numbers: NumericReport | None) -> ValidationCheck:
    label = installed.label
    if numbers is None:
        return skipped_check("backend", "nothing was called")
    called = sorted({symbol.rpartition(".")[0] for symbol in numbers.call_counts})
    modules = ", ".join(called) or "nothing"
    if label is None:
        return skipped_check("backend", f"the version has no label; called: {modules}")
    wanted = find_tolerance(label).module
    if called == [wanted]:
        return made_check("backend", True, modules)
    return made_check("backend", False, f"called {modules} instead of {wanted}: is {_VARIABLE} set?")


def _module(installed: InstalledPackage, numbers: NumericReport | None, *, elsewhere: bool) -> ValidationCheck:
    files = installed.distribution.files
    if numbers is None:
        return skipped_check("module", "nothing was called")
    if elsewhere:
        owner = "the wheel's" if numbers.from_wheel else "an older module of this Python, not the wheel's"
        return made_check("module", numbers.from_wheel, f"called {owner}")
    if files is None:
        return skipped_check("module", "the installation has no RECORD")
    if numbers.file in files:
        return made_check("module", True, "called a file of this installation")
    if installed.kernels and numbers.file in (installed.kernels.files or ()):
        wrong = installed.kernels.record_mismatches
        changed = f", changed: {wrong[0]}" if wrong else ""
        return made_check("module", not wrong, f"called a file of {name_aiter(installed.kernels.version)}{changed}")
    return made_check("module", False, f"called {numbers.file}, which this installation does not contain")


def find_standard(backend: str) -> Tolerance | None:
    """The bounds for the results of a backend module; None if it is unknown."""
    return next(
        (known for known in (*TOLERANCES.values(), AITER_TOLERANCE, FALLBACK_TOLERANCE) if known.module == backend),
        None,
    )


def as_cases(
    found: NumericReport, limits: Sequence[KnownLimit], refused: Collection[str] | None
) -> Iterator[ValidationCase]:
    """The cases that ran with their bounds, then the cases that a limit excludes.

    `refused` are the options for which the package must raise an error; None if they are unknown.
    """
    standard = find_standard(found.backend)
    for case in found.cases:
        if standard is None:
            yield ValidationCase(name=case.name, status=Status.FAILED, detail=f"no bound is known for {found.backend}")
        elif error := case.error([case.option] * bool(case.refused and case.option) if refused is None else refused):
            yield ValidationCase(name=case.name, status=Status.FAILED, detail=error)
        elif case.not_run:
            yield ValidationCase(name=case.name, status=Status.NOT_RUN, detail=f"the emulator lacks {case.not_run}")
        elif case.refused:
            yield ValidationCase(name=case.name, status=Status.NOT_RUN, detail=f"refused: {case.refused}")
        else:
            yield _case(case, standard, limits)
    for name in found.left_out:
        yield ValidationCase(name=name, status=Status.NOT_RUN, detail=_reason(name, limits))


def _case(case: accuracy.NumericCase, tolerance: Tolerance, limits: Sequence[KnownLimit]) -> ValidationCase:
    bounded = accuracy.error_bounds(case, tolerance)
    right = bool(bounded) and all(is_within(*pair) for pair in bounded.values())
    # a report is JSON, which has no other numbers
    finite = {name: pair for name, pair in bounded.items() if all(map(math.isfinite, pair))}
    not_finite = "; ".join(
        f"{name} is off by {error:g} (at most {bound:g})"
        for name, (error, bound) in bounded.items()
        if name not in finite
    )
    return ValidationCase(
        name=case.name,
        status=Status.PASSED if right else Status.FAILED,
        errors=tuple(ResultError(result=name, error=error, bound=bound) for name, (error, bound) in finite.items()),
        detail=not_finite or _reason(case.name, [limit for limit in limits if not limit.skip_forward]),
    )


def _reason(name: str, limits: Sequence[KnownLimit]) -> str:
    return "; ".join(str(limit) for limit in limits if fnmatchcase(name, limit.cases))
