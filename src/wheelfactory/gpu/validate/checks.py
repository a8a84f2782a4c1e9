"""Facts about an installation in, one check each out; numbers that a program computed in, one case each out. Pure.

The bounds are those of the gates (`verify.numbers`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from wheelfactory.core.cell import same_rocm
from wheelfactory.gpu.torch_python import TorchPython
from wheelfactory.gpu.validate.installed import Installed
from wheelfactory.gpu.validate.report import Case, Check, Error
from wheelfactory.verify import numbers
from wheelfactory.verify.limits import Limit
from wheelfactory.verify.numbers import FALLBACK, STANDARDS, Numbers, Standard
from wheelfactory.verify.result import Status, is_within

_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"


def checks_of(installed: Installed, python: TorchPython | None, *, foreign: bool) -> Iterator[Check]:
    """Whether what is installed is whole, and fits the Python that it is for; None if a stand-in takes its place."""
    yield _files(installed)
    if installed.fallback:
        yield _torch(installed, python)
        return
    yield _record(installed)
    yield _torch(installed, python)
    yield _rocm(installed, python, foreign=foreign)
    yield _arch(installed, python, foreign=foreign)


def checks_of_calls(installed: Installed, numbers: Numbers | None, *, elsewhere: bool) -> Iterator[Check]:
    """Whether what was called is what is installed; None if nothing was.

    `elsewhere` is whether it was called where the wheel was installed once more, in an environment of its own.
    """
    if not installed.fallback:
        yield _backend(installed, numbers)
    yield _module(installed, numbers, elsewhere=elsewhere)


def judged(name: str, right: bool, detail: str) -> Check:
    """A check that was made."""
    return Check(name=name, status=Status.PASSED if right else Status.FAILED, detail=detail)


def not_run(name: str, why: str) -> Check:
    """A check that was not made."""
    return Check(name=name, status=Status.NOT_RUN, detail=why)


def _files(installed: Installed) -> Check:
    files, troubles = installed.distribution.files, installed.distribution.troubles
    if files is None:
        return not_run("files", "there is no RECORD of what was installed")
    more = f" and {len(troubles) - 1} more" if len(troubles) > 1 else ""
    said = f"{troubles[0]}{more}" if troubles else f"{len(files)} agree with RECORD"
    return judged("files", not troubles, said)


def _record(installed: Installed) -> Check:
    record, label = installed.record, installed.distribution.version.partition("+")[2]
    if record is None and installed.label is None:
        return not_run("build record", "there is none: not a finished wheel of this factory")
    if record is None:
        return judged("build record", False, f"none that can be read, and the version has the label {label}")
    if record.label != label:
        return judged("build record", False, f"of {record.label}, and the version has the label {label or '(none)'}")
    return judged("build record", True, record.cell)


def _torch(installed: Installed, python: TorchPython | None) -> Check:
    wanted = installed.torch
    if python is None:
        return not_run("torch", "another torch stands in for the one that it is for")
    if wanted is None:
        return not_run("torch", "it requires none")
    fits = wanted.specifier.contains(python.torch, prereleases=True)
    return judged("torch", fits, f"{python.torch}, required is {wanted}")


def _rocm(installed: Installed, python: TorchPython | None, *, foreign: bool) -> Check:
    label = installed.label
    if foreign:
        return not_run("ROCm", "the GPU is of another vendor")
    if label is None:
        return not_run("ROCm", "no label says which it is for")
    if python is None or python.hip is None:
        return not_run("ROCm", "torch is not built for ROCm")
    wanted = label.rocm_version
    return judged("ROCm", same_rocm(python.hip, wanted), f"torch has HIP {python.hip}, the label says ROCm {wanted}")


def _arch(installed: Installed, python: TorchPython | None, *, foreign: bool) -> Check:
    archs = installed.record.offload_archs if installed.record else ()
    if foreign:
        return not_run("arch", "the GPU is of another vendor")
    if python is None or python.vendor != "amd":
        return not_run("arch", "torch sees no AMD GPU")
    if not archs:
        return not_run("arch", "no build record says which are promised")
    return judged("arch", python.arch in archs, f"{python.arch}; promised are {', '.join(archs)}")


def _backend(installed: Installed, numbers: Numbers | None) -> Check:
    label = installed.label
    if numbers is None:
        return not_run("backend", "nothing was called")
    called = sorted({symbol.rpartition(".")[0] for symbol in numbers.symbols})
    said = ", ".join(called) or "nothing was called"
    if label is None:
        return not_run("backend", f"no label says which it is; called was {said}")
    wanted = STANDARDS[label.backend].module
    if called == [wanted]:
        return judged("backend", True, said)
    return judged("backend", False, f"{said} instead of {wanted}: is {_VARIABLE} set?")


def _module(installed: Installed, numbers: Numbers | None, *, elsewhere: bool) -> Check:
    files = installed.distribution.files
    if numbers is None:
        return not_run("module", "nothing was called")
    if elsewhere:
        said = "the wheel's" if numbers.installed else "not the wheel's, but one that the Python had before"
        return judged("module", numbers.installed, f"what was called is {said}")
    if files is None:
        return not_run("module", "there is no RECORD of what was installed")
    if numbers.file in files:
        return judged("module", True, "what was called is a file of this installation")
    what = FALLBACK.module if installed.fallback else "the backend"
    return judged("module", False, f"{what} came from {numbers.file}, which is no file of this installation")


def find_standard(backend: str) -> Standard | None:
    """What a module that computes is held to; None for one that nobody knows."""
    return next((known for known in (*STANDARDS.values(), FALLBACK) if known.module == backend), None)


def cases_of(found: Numbers, limits: Sequence[Limit]) -> Iterator[Case]:
    """The cases that ran, and those that a limit left out."""
    standard = find_standard(found.backend)
    for case in found.cases:
        if standard is None:
            yield Case(name=case.name, status=Status.FAILED, detail=f"no bound is known for {found.backend}")
        elif case.error:
            yield Case(name=case.name, status=Status.FAILED, detail=case.error)
        else:
            yield _case(case, standard, limits)
    for name in found.left_out:
        yield Case(name=name, status=Status.NOT_RUN, detail=_reason(name, limits))


def _case(case: numbers.Case, standard: Standard, limits: Sequence[Limit]) -> Case:
    bounded = numbers.bounded(case, standard)
    right = bool(bounded) and all(is_within(*pair) for pair in bounded.values())
    # a report is JSON, which has no other numbers
    finite = {name: pair for name, pair in bounded.items() if all(map(math.isfinite, pair))}
    not_finite = "; ".join(
        f"{name} is off by {error:g} (at most {bound:g})"
        for name, (error, bound) in bounded.items()
        if name not in finite
    )
    return Case(
        name=case.name,
        status=Status.PASSED if right else Status.FAILED,
        errors=tuple(Error(result=name, error=error, bound=bound) for name, (error, bound) in finite.items()),
        detail=not_finite or _reason(case.name, [limit for limit in limits if not limit.whole]),
    )


def _reason(name: str, limits: Sequence[Limit]) -> str:
    return "; ".join(str(limit) for limit in limits if fnmatchcase(name, limit.cases))
