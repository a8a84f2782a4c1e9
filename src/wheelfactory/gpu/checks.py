"""Check the facts of an installation, and compare computed numbers with their bounds. Pure.

The bounds are the gates' bounds (`verify.accuracy`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from wheelfactory.core.cell import Backend, local_version
from wheelfactory.core.label import name_aiter, rocm_of_torch
from wheelfactory.gpu.installed import InstalledPackage
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validation_report import Hardware, ResultError, Software, ValidationCase, ValidationCheck
from wheelfactory.verify import accuracy
from wheelfactory.verify.accuracy import (
    AITER_TOLERANCE,
    FALLBACK_TOLERANCE,
    TOLERANCES,
    KnownLimit,
    NumericReport,
    Tolerance,
    find_tolerance,
)
from wheelfactory.verify.result import Status, is_within

_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"


Found: TypeAlias = tuple[bool | None, str]
"""Whether a check passed, and what it found; or None, and why it did not run."""


def check_installed(
    installed: InstalledPackage, python: TorchPython | None, *, non_amd_gpu: bool
) -> Iterator[ValidationCheck]:
    """Check that the installed files are intact and fit `python`; None if a stand-in torch computed."""
    software = python.software if python else None
    yield made_check("files", *_files(installed))
    if not installed.is_fallback:
        yield made_check("build record", *_record(installed))
    yield made_check("torch", *_torch(installed, software))
    if not installed.is_fallback:
        not_amd = None, "not an AMD GPU"
        yield made_check("ROCm", *(not_amd if non_amd_gpu else _rocm(installed, software)))
        yield made_check("arch", *(not_amd if non_amd_gpu else _arch(installed, python.gpu if python else None)))


def check_calls(
    installed: InstalledPackage, numbers: NumericReport | None, *, elsewhere: bool
) -> Iterator[ValidationCheck]:
    """Check that the functions called are the installed ones. `numbers` is None if nothing ran.

    With `elsewhere`, the wheel ran in a second environment, so RECORD of this installation does not list its files.
    """
    nothing = None, "nothing was called"
    if not installed.is_fallback:
        yield made_check("backend", *(_backend(installed, numbers) if numbers else nothing))
    yield made_check("module", *(_module(installed, numbers, elsewhere=elsewhere) if numbers else nothing))


def made_check(name: str, passed: bool | None, detail: str) -> ValidationCheck:
    """The result of a check; `passed` is None if it did not run, and `detail` then says why."""
    status = Status.NOT_RUN if passed is None else Status.PASSED if passed else Status.FAILED
    return ValidationCheck(name=name, status=status, detail=detail)


def _files(installed: InstalledPackage) -> Found:
    files, mismatches = installed.distribution.files, installed.distribution.record_mismatches
    if files is None:
        return None, "the installation has no RECORD"
    more = f" and {len(mismatches) - 1} more" if len(mismatches) > 1 else ""
    return not mismatches, f"{mismatches[0]}{more}" if mismatches else f"{len(files)} agree with RECORD"


def _record(installed: InstalledPackage) -> Found:
    record, label = installed.record, local_version(installed.distribution.version)
    if record is None and installed.label is None:
        return None, "missing: not a finished wheel of this factory"
    if record is None:
        return False, f"missing or unreadable, but the version has the label {label}"
    if record.label != label:
        return False, f"for {record.label}, but the version has the label {label or '(none)'}"
    return True, record.cell


def _torch(installed: InstalledPackage, software: Software | None) -> Found:
    wanted = installed.torch
    if software is None:
        return None, "a stand-in torch computed"
    if wanted is None:
        return None, "the package requires none"
    return wanted.specifier.contains(software.torch, prereleases=True), f"{software.torch}, requires {wanted}"


def _rocm(installed: InstalledPackage, software: Software | None) -> Found:
    if installed.label is None:
        return None, "the version has no label"
    if software is None or software.hip is None:
        return None, "torch is not built for ROCm"
    label = installed.label
    # one Triton wheel serves every ROCm
    fits = label.backend is Backend.TRITON or rocm_of_torch(software.torch, software.hip) == label.rocm
    return fits, f"torch {software.torch} has HIP {software.hip}, the label requires ROCm {label.rocm_version}"


def _arch(installed: InstalledPackage, gpu: Hardware | None) -> Found:
    archs = installed.record.offload_archs if installed.record else ()
    if gpu is None or gpu.vendor != "amd":
        return None, "torch sees no AMD GPU"
    if not archs:
        return None, "no build record lists the supported archs"
    return gpu.arch in archs, f"{gpu.arch}; supported: {', '.join(archs)}"


def _backend(installed: InstalledPackage, numbers: NumericReport) -> Found:
    called = sorted({symbol.rpartition(".")[0] for symbol in numbers.call_counts})
    modules = ", ".join(called) or "nothing"
    if installed.label is None:
        return None, f"the version has no label; called: {modules}"
    wanted = find_tolerance(installed.label).module
    is_wanted = called == [wanted]
    return is_wanted, modules if is_wanted else f"called {modules} instead of {wanted}: is {_VARIABLE} set?"


def _module(installed: InstalledPackage, numbers: NumericReport, *, elsewhere: bool) -> Found:
    files = installed.distribution.files
    if elsewhere:
        owner = "the wheel's" if numbers.from_wheel else "an older module of this Python, not the wheel's"
        return numbers.from_wheel, f"called {owner}"
    if files is None:
        return None, "the installation has no RECORD"
    if numbers.file in files:
        return True, "called a file of this installation"
    if installed.kernels and numbers.file in (installed.kernels.files or ()):
        wrong = installed.kernels.record_mismatches
        changed = f", changed: {wrong[0]}" if wrong else ""
        return not wrong, f"called a file of {name_aiter(installed.kernels.version)}{changed}"
    return False, f"called {numbers.file}, which this installation does not contain"


def find_standard(backend: str) -> Tolerance | None:
    """The bounds for the results of a backend module; None if it is unknown."""
    known = (*TOLERANCES.values(), AITER_TOLERANCE, FALLBACK_TOLERANCE)
    return next((tolerance for tolerance in known if tolerance.module == backend), None)


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
    others = [(name, *pair) for name, pair in bounded.items() if name not in finite]
    not_finite = "; ".join(f"{name} is off by {error:g} (at most {bound:g})" for name, error, bound in others)
    return ValidationCase(
        name=case.name,
        status=Status.PASSED if right else Status.FAILED,
        errors=tuple(ResultError(result=name, error=error, bound=bound) for name, (error, bound) in finite.items()),
        detail=not_finite or _reason(case.name, [limit for limit in limits if not limit.skip_forward]),
    )


def _reason(name: str, limits: Sequence[KnownLimit]) -> str:
    return "; ".join(str(limit) for limit in limits if fnmatchcase(name, limit.cases))
