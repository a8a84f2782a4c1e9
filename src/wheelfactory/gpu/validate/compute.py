"""Compute the numeric cases of an installed package: on the GPU if one fits, else on the CPU or in the interpreter."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.build.environments import PYTHON
from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.host import Host
from wheelfactory.core.progress import logger
from wheelfactory.gpu.torch_python import AUTOTUNE_VARIABLE, TorchPython, require_no_autotune, require_non_amd_gpu
from wheelfactory.gpu.validate.checks import as_cases, made_check, skipped_check
from wheelfactory.gpu.validate.installed import InstalledPackage
from wheelfactory.gpu.validate.report import (
    Hardware,
    Software,
    ValidationCase,
    ValidationCheck,
    as_hardware,
    as_software,
)
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Context, Matrix
from wheelfactory.matrix.select import require_in_matrix
from wheelfactory.verify import interpreter
from wheelfactory.verify.accuracy import FALLBACK_TOLERANCE, NUMBERS_PROGRAM, NumericReport
from wheelfactory.verify.ahead_of_time import check_ahead_of_time, predict_minutes
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.limits import KnownLimit, find_cell_limits, find_limits
from wheelfactory.verify.proofs import HasPython, device_environ, run_program, stand_in_torch_version
from wheelfactory.verify.result import Status
from wheelfactory.wheel.activation.options import refused_options
from wheelfactory.wheel.read import Wheel

TIMEOUT = 3600.0
"""Seconds for the full suite. Nearly all of them go to Triton's compiler, which uses one core."""

# variables that select the backend and its tuning. They are passed on unchanged: the user's choice is validated
_PASSED_ON = ("FLASH_ATTENTION_TRITON_AMD_ENABLE", AUTOTUNE_VARIABLE)


@dataclass(frozen=True)
class ValidationContext:
    """Where a package is installed, and what is available to run it."""

    runner: HasPython
    """The Python that has the package: `python` itself, or an environment layered over it."""
    python: TorchPython
    scratch: Path
    matrix: Matrix
    host: Host
    environ: Mapping[str, str]
    cache: Path
    wheel: Wheel | None
    """The wheel file to validate; None for a package that was installed already."""
    non_amd_gpu: bool
    """Whether the test mode for non-AMD GPUs is on."""


@dataclass(frozen=True)
class ComputeResult:
    """The checks, cases and numbers of one computation."""

    software: Software
    checks: tuple[ValidationCheck, ...]
    cases: tuple[ValidationCase, ...] = ()
    numbers: NumericReport | None = None
    hardware: Hardware = field(default_factory=Hardware)
    used_stand_in_torch: bool = False
    """Whether a CPU torch computed instead of the user's torch."""


def compute_cases(installed: InstalledPackage, context: ValidationContext) -> ComputeResult:
    """Compute on the best device available, and report why the GPU was not used.

    Raises `InputError` if the test mode does not fit the package or the GPU.
    """
    if context.non_amd_gpu:
        if installed.backend is not Backend.TRITON:
            reason = "runs on any GPU" if installed.is_fallback else "its kernels are compiled for AMD GPUs"
            which = f"{installed.project} ({reason})"
            raise InputError("not for the non-AMD GPU test mode", which, "leave --non-amd-gpu out")
        require_non_amd_gpu(context.python)
        require_no_autotune(context.environ.get(AUTOTUNE_VARIABLE, ""))
    reason = _why_not_on_gpu(installed, context)
    if not reason:
        return _on_gpu(installed, context)
    check = skipped_check("GPU", reason)
    if installed.is_fallback:
        logger.info("no GPU can be used: computing every case on the CPU, about a minute")
        answer = _ask(context, FALLBACK_TOLERANCE.module, "cpu", "full")
        return _computed(as_software(context.python), (check,), answer, (), (), "on the CPU")
    if installed.backend is Backend.CK:
        return ComputeResult(as_software(context.python), (check,))
    if context.wheel:
        return _with_stand_in(context.wheel, installed, context, check)
    return _in_interpreter(installed, context, check)


def _why_not_on_gpu(installed: InstalledPackage, place: ValidationContext) -> str:
    python = place.python
    if python.vendor is None:
        return f"torch {python.torch} of {python.python} sees none"
    if python.vendor == "amd" or installed.is_fallback or place.non_amd_gpu:
        return ""
    hint = "; --non-amd-gpu runs it in a test mode" if installed.backend is Backend.TRITON else ""
    return f"{python.device} is not an AMD GPU{hint}"


def _on_gpu(installed: InstalledPackage, place: ValidationContext) -> ComputeResult:
    python = place.python
    logger.info("computing on %s: compiling kernels takes a while", python.device)
    limits = _limits(installed, python)
    module = FALLBACK_TOLERANCE.module if installed.is_fallback else "flash_attn"
    options = ("--non-amd-gpu",) if place.non_amd_gpu else ()
    answer = _ask(place, module, "cuda", "full", *options, *(limit.argument for limit in limits))
    # variables such as HIP_VISIBLE_DEVICES are not all passed on, so the program can see another GPU than the user
    here = f"{python.device} ({python.arch})"
    if isinstance(answer, str):
        check = skipped_check("GPU", f"{here}: the program ended before it reported its GPU")
    else:
        right = answer.gpu == python.arch
        check = made_check("GPU", right, here if right else f"computed on {answer.gpu or 'none'} instead of {here}")
    return _computed(
        as_software(python), (check,), answer, limits, _refused(installed), f"on {python.device}", as_hardware(python)
    )


def _in_interpreter(installed: InstalledPackage, place: ValidationContext, check: ValidationCheck) -> ComputeResult:
    """Run the small suite on the CPU with the user's Triton."""
    python = place.python
    missing = [name for name, there in (("Triton", python.triton), ("numpy", installed.has_numpy)) if not there]
    if missing:
        why = f"{python.python} has no {' and no '.join(missing)}, which Triton's interpreter needs"
        return ComputeResult(as_software(python), (check, skipped_check("interpreter", why)))
    logger.info(
        "no GPU can be used: computing small cases in the interpreter of Triton %s on the CPU, less than a minute",
        python.triton,
    )
    limits = _limits(installed, python)
    arguments = ("flash_attn", "cpu", "small", *(limit.argument for limit in limits))
    answer = _ask(place, *arguments, variables={"TRITON_INTERPRET": "1"})
    return _computed(as_software(python), (check,), answer, limits, _refused(installed), interpreter.DEVICE_PHRASE)


def _with_stand_in(
    wheel: Wheel, installed: InstalledPackage, place: ValidationContext, check: ValidationCheck
) -> ComputeResult:
    """Run as the slow gates do: with the cell's Triton, and a CPU torch instead of ROCm's."""
    try:
        if installed.record is None:
            raise InputError("no build record", wheel.path.name, "it names the Triton that compiles the kernels")
        cell = require_in_matrix(expand(place.matrix), Cell.parse(installed.record.cell))
    except InputError as error:
        return ComputeResult(as_software(place.python), (check, skipped_check("interpreter", str(error))))
    subject = Subject(wheel, installed.record, cell, Context(place.matrix, place.host, place.environ, place.cache))
    logger.info(
        "no GPU can be used. Step 1 of 2: compile the kernels for %d archs, about %d min on an idle machine, kept for "
        "the next time. Step 2 of 2: compute small cases in Triton's interpreter on the CPU, less than a minute",
        len(subject.record.offload_archs),
        predict_minutes(subject),
    )
    found = check_ahead_of_time(subject)
    detail = "; ".join(map(str, found.findings)) or found.detail
    checks = (check, ValidationCheck(name=found.gate, status=found.status, detail=detail))
    software = Software(python=PYTHON, torch=stand_in_torch_version(), triton=subject.triton)
    answer = interpreter.compute(subject)
    return _computed(
        software,
        checks,
        answer,
        find_cell_limits(subject),
        refused_options(cell),
        interpreter.DEVICE_PHRASE,
        stand_in=True,
    )


def _ask(place: ValidationContext, *arguments: str, variables: Mapping[str, str] | None = None) -> NumericReport | str:
    """The program's report, or why it has none."""
    environ = place.environ
    chosen = {name: environ[name] for name in _PASSED_ON if name in environ}
    given = {**device_environ(environ), **chosen, **(variables or {})}
    return run_program(
        (NUMBERS_PROGRAM, *arguments), NumericReport, place.runner, given, scratch=place.scratch, timeout=TIMEOUT
    )


def _limits(installed: InstalledPackage, python: TorchPython) -> tuple[KnownLimit, ...]:
    if installed.backend is not Backend.TRITON or python.triton is None:
        return ()
    release = installed.distribution.version.partition("+")[0]
    return find_limits(release, python.triton.partition("+")[0], python.arch)


def _refused(installed: InstalledPackage) -> Collection[str] | None:
    """The options for which the package must raise an error; None for a package that is not of this factory."""
    if installed.is_fallback:
        return ()
    return refused_options(Cell.parse(installed.record.cell)) if installed.record else None


def _computed(
    software: Software,
    checks: tuple[ValidationCheck, ...],
    answer: NumericReport | str,
    limits: Sequence[KnownLimit],
    refused: Collection[str] | None,
    where: str,
    hardware: Hardware | None = None,
    *,
    stand_in: bool = False,
) -> ComputeResult:
    numbers = None if isinstance(answer, str) else answer
    cases = tuple(as_cases(numbers, limits, refused)) if numbers else ()
    if numbers is None or not numbers.cases:  # cases that a limit excludes do not count as a pass
        nothing = answer if isinstance(answer, str) else "no case"
        cases = (ValidationCase(name=f"all {where}", status=Status.FAILED, detail=nothing), *cases)
    return ComputeResult(software, checks, cases, numbers, hardware or Hardware(), stand_in)
