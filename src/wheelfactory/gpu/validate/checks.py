"""Facts about an installation in, one check each out; numbers that a program computed in, one case each out. Pure.

The bounds are those of the gates (`verify.numbers`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from wheelfactory.core.cell import same_rocm
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validate.installed import InstalledPackage
from wheelfactory.gpu.validate.report import ResultError, ValidationCase, ValidationCheck
from wheelfactory.verify import numbers
from wheelfactory.verify.limits import KnownLimit
from wheelfactory.verify.numbers import FALLBACK_TOLERANCE, TOLERANCES, NumericReport, Tolerance
from wheelfactory.verify.result import Status, is_within

_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"


def check_installed(
    installed: InstalledPackage, python: TorchPython | None, *, non_amd_gpu: bool
) -> Iterator[ValidationCheck]:
    """Whether what is installed is whole, and fits the Python that it is for; None if a stand-in takes its place."""
    yield _files(installed)
    if installed.is_fallback:
        yield _torch(installed, python)
        return
    yield _record(installed)
    yield _torch(installed, python)
    yield _rocm(installed, python, foreign=non_amd_gpu)
    yield _arch(installed, python, foreign=non_amd_gpu)


def check_calls(
    installed: InstalledPackage, numbers: NumericReport | None, *, elsewhere: bool
) -> Iterator[ValidationCheck]:
    """Whether what was called is what is installed; None if nothing was.

    `elsewhere` is whether it was called where the wheel was installed once more, in an environment of its own.
    """
    if not installed.is_fallback:
        yield _backend(installed, numbers)
    yield _module(installed, numbers, elsewhere=elsewhere)


def made_check(name: str, right: bool, detail: str) -> ValidationCheck:
    """A check that was made."""
    return ValidationCheck(name=name, status=Status.PASSED if right else Status.FAILED, detail=detail)


def skipped_check(name: str, why: str) -> ValidationCheck:
    """A check that was not made."""
    return ValidationCheck(name=name, status=Status.NOT_RUN, detail=why)


def _files(installed: InstalledPackage) -> ValidationCheck:
    files, troubles = installed.distribution.files, installed.distribution.record_mismatches
    if files is None:
        return skipped_check("files", "there is no RECORD of what was installed")
    more = f" and {len(troubles) - 1} more" if len(troubles) > 1 else ""
    said = f"{troubles[0]}{more}" if troubles else f"{len(files)} agree with RECORD"
    return made_check("files", not troubles, said)


def _record(installed: InstalledPackage) -> ValidationCheck:
    record, label = installed.record, installed.distribution.version.partition("+")[2]
    if record is None and installed.label is None:
        return skipped_check("build record", "there is none: not a finished wheel of this factory")
    if record is None:
        return made_check("build record", False, f"none that can be read, and the version has the label {label}")
    if record.label != label:
        return made_check(
            "build record", False, f"of {record.label}, and the version has the label {label or '(none)'}"
        )
    return made_check("build record", True, record.cell)


def _torch(installed: InstalledPackage, python: TorchPython | None) -> ValidationCheck:
    wanted = installed.torch
    if python is None:
        return skipped_check("torch", "another torch stands in for the one that it is for")
    if wanted is None:
        return skipped_check("torch", "it requires none")
    fits = wanted.specifier.contains(python.torch, prereleases=True)
    return made_check("torch", fits, f"{python.torch}, required is {wanted}")


def _rocm(installed: InstalledPackage, python: TorchPython | None, *, foreign: bool) -> ValidationCheck:
    label = installed.label
    if foreign:
        return skipped_check("ROCm", "the GPU is of another vendor")
    if label is None:
        return skipped_check("ROCm", "no label says which it is for")
    if python is None or python.hip is None:
        return skipped_check("ROCm", "torch is not built for ROCm")
    wanted = label.rocm_version
    return made_check(
        "ROCm", same_rocm(python.hip, wanted), f"torch has HIP {python.hip}, the label says ROCm {wanted}"
    )


def _arch(installed: InstalledPackage, python: TorchPython | None, *, foreign: bool) -> ValidationCheck:
    archs = installed.record.offload_archs if installed.record else ()
    if foreign:
        return skipped_check("arch", "the GPU is of another vendor")
    if python is None or python.vendor != "amd":
        return skipped_check("arch", "torch sees no AMD GPU")
    if not archs:
        return skipped_check("arch", "no build record says which are promised")
    return made_check("arch", python.arch in archs, f"{python.arch}; promised are {', '.join(archs)}")


def _backend(installed: InstalledPackage, numbers: NumericReport | None) -> ValidationCheck:
    label = installed.label
    if numbers is None:
        return skipped_check("backend", "nothing was called")
    called = sorted({symbol.rpartition(".")[0] for symbol in numbers.symbols})
    said = ", ".join(called) or "nothing was called"
    if label is None:
        return skipped_check("backend", f"no label says which it is; called was {said}")
    wanted = TOLERANCES[label.backend].module
    if called == [wanted]:
        return made_check("backend", True, said)
    return made_check("backend", False, f"{said} instead of {wanted}: is {_VARIABLE} set?")


def _module(installed: InstalledPackage, numbers: NumericReport | None, *, elsewhere: bool) -> ValidationCheck:
    files = installed.distribution.files
    if numbers is None:
        return skipped_check("module", "nothing was called")
    if elsewhere:
        said = "the wheel's" if numbers.installed else "not the wheel's, but one that the Python had before"
        return made_check("module", numbers.installed, f"what was called is {said}")
    if files is None:
        return skipped_check("module", "there is no RECORD of what was installed")
    if numbers.file in files:
        return made_check("module", True, "what was called is a file of this installation")
    what = FALLBACK_TOLERANCE.module if installed.is_fallback else "the backend"
    return made_check("module", False, f"{what} came from {numbers.file}, which is no file of this installation")


def find_standard(backend: str) -> Tolerance | None:
    """What a module that computes is held to; None for one that nobody knows."""
    return next((known for known in (*TOLERANCES.values(), FALLBACK_TOLERANCE) if known.module == backend), None)


def as_cases(found: NumericReport, limits: Sequence[KnownLimit]) -> Iterator[ValidationCase]:
    """The cases that ran, and those that a limit left out."""
    standard = find_standard(found.backend)
    for case in found.cases:
        if standard is None:
            yield ValidationCase(name=case.name, status=Status.FAILED, detail=f"no bound is known for {found.backend}")
        elif case.error:
            yield ValidationCase(name=case.name, status=Status.FAILED, detail=case.error)
        else:
            yield _case(case, standard, limits)
    for name in found.left_out:
        yield ValidationCase(name=name, status=Status.NOT_RUN, detail=_reason(name, limits))


def _case(case: numbers.NumericCase, standard: Tolerance, limits: Sequence[KnownLimit]) -> ValidationCase:
    bounded = numbers.error_bounds(case, standard)
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
