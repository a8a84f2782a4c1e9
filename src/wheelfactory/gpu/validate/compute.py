"""Something installed in, its numbers out: from the GPU if one fits, else from what can take its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.build.environments import PYTHON
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.host import Host
from wheelfactory.core.progress import logger
from wheelfactory.gpu.torch_python import AUTOTUNE, TorchPython, require_foreign_gpu, require_no_autotune
from wheelfactory.gpu.validate.checks import cases_of, judged, not_run
from wheelfactory.gpu.validate.installed import Installed
from wheelfactory.gpu.validate.report import Case, Check, Hardware, Software, hardware_of, software_of
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Matrix
from wheelfactory.matrix.select import require
from wheelfactory.verify import interpreter
from wheelfactory.verify.ahead_of_time import ahead_of_time
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import FULL_LIMITS, LIMITS, Limit, find_limits, limits_of
from wheelfactory.verify.numbers import CHECK, FALLBACK, Numbers
from wheelfactory.verify.proofs import HasPython, ask, handed, stand_in_torch
from wheelfactory.verify.result import Status
from wheelfactory.wheel.read import Wheel

TIMEOUT = 3600.0
"""Seconds for the full suite; nearly all of it is Triton's compiler, on one core."""

_PASSED_ON = ("FLASH_ATTENTION_TRITON_AMD_ENABLE", AUTOTUNE)
"""Variables with which a user chooses what runs; they are left as they are, since that is what is validated."""


@dataclass(frozen=True)
class Place:
    """Where something is installed, and what is at hand there."""

    runner: HasPython
    """Has the package; that of `python`, or of an environment over it."""
    python: TorchPython
    scratch: Path
    matrix: Matrix
    host: Host
    environ: Mapping[str, str]
    cache: Path
    wheel: Wheel | None
    """The file it was installed from, if that is what was named."""
    foreign: bool
    """Whether the test mode was asked for."""


@dataclass(frozen=True)
class Computed:
    """What came of it."""

    software: Software
    checks: tuple[Check, ...]
    cases: tuple[Case, ...] = ()
    numbers: Numbers | None = None
    hardware: Hardware = field(default_factory=Hardware)
    stand_in: bool = False
    """Whether another torch computed than the one at hand."""


def compute(installed: Installed, place: Place) -> Computed:
    """Compute where that can be done, and say why not elsewhere. Raises `InputError` for a test mode that cannot be."""
    if place.foreign:
        if installed.backend is not Backend.TRITON:
            runs = "it runs on any GPU as it is" if installed.fallback else "its kernels are compiled for GPUs of AMD"
            which = f"{installed.project} ({runs})"
            raise InputError("not for the foreign-GPU test mode", which, "leave --foreign-gpu out")
        require_foreign_gpu(place.python)
        require_no_autotune(place.environ.get(AUTOTUNE, ""))
    reason = _why_not_on_gpu(installed, place)
    if not reason:
        return _on_gpu(installed, place)
    check = not_run("GPU", reason)
    if installed.fallback:
        logger.info("computing on the CPU")
        answer = _ask(place, FALLBACK.module, "cpu", "full")
        return _computed(software_of(place.python), (check,), answer, (), "on the CPU")
    if installed.backend is Backend.CK:
        return Computed(software_of(place.python), (check,))
    if place.wheel:
        return _with_stand_in(place.wheel, installed, place, check)
    return _in_interpreter(installed, place, check)


def _why_not_on_gpu(installed: Installed, place: Place) -> str:
    python = place.python
    if python.vendor is None:
        return f"torch {python.torch} of {python.python} sees none"
    if python.vendor == "amd" or installed.fallback or place.foreign:
        return ""
    way = "; --foreign-gpu computes there, in a test mode" if installed.backend is Backend.TRITON else ""
    return f"{python.device} is none of AMD{way}"


def _on_gpu(installed: Installed, place: Place) -> Computed:
    python = place.python
    logger.info("computing on %s: compiling kernels takes a while", python.device)
    limits = _limits(installed, python, FULL_LIMITS)
    module = FALLBACK.module if installed.fallback else "flash_attn"
    options = ("--foreign-gpu",) if place.foreign else ()
    answer = _ask(place, module, "cuda", "full", *options, *(limit.argument for limit in limits))
    # whether the program had the GPU that torch has for the user; no others of their variables were handed to it
    here = f"{python.device} ({python.arch})"
    if isinstance(answer, str):
        check = not_run("GPU", f"{here}: the program ended before it said where it computes")
    else:
        right = answer.gpu == python.arch
        check = judged("GPU", right, here if right else f"computed on {answer.gpu or 'none'} instead of {here}")
    return _computed(software_of(python), (check,), answer, limits, f"on {python.device}", hardware_of(python))


def _in_interpreter(installed: Installed, place: Place, check: Check) -> Computed:
    """On the CPU, with the Triton at hand."""
    python = place.python
    lacking = [name for name, there in (("Triton", python.triton), ("numpy", installed.numpy)) if not there]
    if lacking:
        why = f"{python.python} has no {' and no '.join(lacking)}, which Triton's interpreter needs"
        return Computed(software_of(python), (check, not_run("interpreter", why)))
    logger.info("computing with the interpreter of Triton %s", python.triton)
    limits = _limits(installed, python, LIMITS)
    arguments = ("flash_attn", "cpu", "small", *(limit.argument for limit in limits))
    answer = _ask(place, *arguments, variables={"TRITON_INTERPRET": "1"})
    return _computed(software_of(python), (check,), answer, limits, interpreter.WHERE)


def _with_stand_in(wheel: Wheel, installed: Installed, place: Place, check: Check) -> Computed:
    """As the slow gates do it: with the Triton of the cell, and a CPU torch in place of ROCm's."""
    try:
        if installed.record is None:
            raise InputError("no build record", wheel.path.name, "it says with which Triton the kernels are compiled")
        cell = require(expand(place.matrix), Cell.parse(installed.record.cell))
    except InputError as error:
        return Computed(software_of(place.python), (check, not_run("interpreter", str(error))))
    subject = Subject(wheel, installed.record, cell, place.matrix, place.host, place.environ, place.cache)
    found = ahead_of_time(subject)
    detail = "; ".join(map(str, found.findings)) or found.detail
    checks = (check, Check(name=found.gate, status=found.status, detail=detail))
    software = Software(python=PYTHON, torch=stand_in_torch(), triton=subject.triton)
    answer = interpreter.compute(subject)
    return _computed(software, checks, answer, limits_of(subject), interpreter.WHERE, stand_in=True)


def _ask(place: Place, *arguments: str, variables: Mapping[str, str] | None = None) -> Numbers | str:
    """What the program says, or why it says nothing."""
    environ = place.environ
    chosen = {name: environ[name] for name in _PASSED_ON if name in environ}
    given = {**handed(environ), **chosen, **(variables or {})}
    return ask((CHECK, *arguments), Numbers, place.runner, given, scratch=place.scratch, timeout=TIMEOUT)


def _limits(installed: Installed, python: TorchPython, known: Sequence[Limit]) -> tuple[Limit, ...]:
    if installed.backend is not Backend.TRITON or python.triton is None:
        return ()
    release = installed.distribution.version.partition("+")[0]
    return find_limits(known, release, python.triton.partition("+")[0], python.arch)


def _computed(
    software: Software,
    checks: tuple[Check, ...],
    answer: Numbers | str,
    limits: Sequence[Limit],
    where: str,
    hardware: Hardware | None = None,
    *,
    stand_in: bool = False,
) -> Computed:
    numbers = None if isinstance(answer, str) else answer
    cases = tuple(cases_of(numbers, limits)) if numbers else ()
    if numbers is None or not numbers.cases:  # those that a limit leaves out are no reason to be content
        nothing = answer if isinstance(answer, str) else "no case"
        cases = (Case(name=f"all {where}", status=Status.FAILED, detail=nothing), *cases)
    return Computed(software, checks, cases, numbers, hardware or Hardware(), stand_in)
