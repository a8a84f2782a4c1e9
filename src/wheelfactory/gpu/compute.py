"""Compute the numeric cases of an installed package: on the GPU if one fits, else on the CPU or an emulator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wheelfactory.build.environments import PYTHON
from wheelfactory.core.cell import Backend, Cell, public_version
from wheelfactory.core.errors import InputError
from wheelfactory.core.progress import logger
from wheelfactory.gpu.checks import as_cases, made_check
from wheelfactory.gpu.installed import InstalledPackage
from wheelfactory.gpu.torch_python import AUTOTUNE_VARIABLE, TorchPython, require_non_amd_gpu
from wheelfactory.gpu.validation_report import (
    Hardware,
    Software,
    ValidationCase,
    ValidationCheck,
)
from wheelfactory.matrix.expand import expand, require_in_matrix
from wheelfactory.matrix.facts import Context
from wheelfactory.verify.accuracy import (
    FALLBACK_TOLERANCE,
    NUMBERS_PROGRAM,
    KnownLimit,
    NumericReport,
    find_cell_limits,
    find_limits,
)
from wheelfactory.verify.emulation import (
    EXECUTE,
    EmulationReport,
    device_phrase,
    emulate,
    linker_environ,
    needs_linker,
    predict_minutes,
)
from wheelfactory.verify.gate import Subject
from wheelfactory.verify.proofs import AnyReport, device_environ, run_program, stand_in_torch_version
from wheelfactory.verify.result import Status
from wheelfactory.wheel.corrections import refused_options
from wheelfactory.wheel.read import Wheel

TIMEOUT = 3600.0
"""Seconds for the full suite. Nearly all of them go to Triton's compiler, which uses one core."""

DEFAULT_ARCH = "gfx942"
"""What a machine without a GPU emulates: the arch with the most users of flash-attn, an MI300X."""

# variables that select the backend and its tuning. They are passed on unchanged: the user's choice is validated
_PASSED_ON = ("FLASH_ATTENTION_TRITON_AMD_ENABLE", AUTOTUNE_VARIABLE)


@dataclass(frozen=True)
class ValidationContext:
    """Where a package is installed, and what is available to run it."""

    context: Context
    runner: Path
    """The interpreter that has the package: that of `python`, or that of an environment layered over it."""
    python: TorchPython
    scratch: Path
    wheel: Wheel | None
    """The wheel file to validate; None for a package that was installed already."""
    non_amd_gpu: bool
    """Whether the test mode for non-AMD GPUs is on."""
    emulated_arch: str | None
    """The arch to execute for on the emulator, though a GPU is there; None lets the machine decide."""


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


def compute_cases(installed: InstalledPackage, place: ValidationContext) -> ComputeResult:
    """Compute on the best device available, and report why the GPU was not used.

    Raises `InputError` if the test mode does not fit the package or the GPU.
    """
    if place.non_amd_gpu:
        reasons = "runs on any GPU", "its kernels are compiled for AMD GPUs"
        _require_triton(installed, "the non-AMD GPU test mode", "--non-amd-gpu", *reasons)
        require_non_amd_gpu(place.python, place.context.environ.get(AUTOTUNE_VARIABLE, ""))
    arch = place.emulated_arch
    if arch:
        reasons = "needs no emulator: it has no kernels", "its kernels are Composable Kernel's"
        _require_triton(installed, "the emulator", "--emulate", *reasons)
    reason = f"--emulate {arch}" if arch else _why_not_on_gpu(installed, place)
    if not reason:
        return _on_gpu(installed, place)
    check = made_check("GPU", None, reason)
    if installed.is_fallback:
        logger.info("no GPU can be used: computing every case on the CPU, about a minute")
        answer = _ask(place, NumericReport, NUMBERS_PROGRAM, FALLBACK_TOLERANCE.module, "cpu", "full")
        return _computed(place.python.software, (check,), answer, (), (), "on the CPU")
    if installed.backend is Backend.CK:
        return ComputeResult(place.python.software, (check,))
    if place.wheel:
        return _with_stand_in(place.wheel, installed, place, check)
    return _on_emulator(installed, place, check)


def _require_triton(installed: InstalledPackage, device: str, option: str, of_fallback: str, of_ck: str) -> None:
    """Raise `InputError` for a package without Triton kernels, with the reason for the fallback or for CK."""
    if installed.backend is not Backend.TRITON:
        reason = of_fallback if installed.is_fallback else of_ck
        raise InputError(f"not for {device}", f"{installed.project} ({reason})", f"leave {option} out")


def _why_not_on_gpu(installed: InstalledPackage, place: ValidationContext) -> str:
    python, gpu = place.python, place.python.gpu
    if gpu.vendor is None:
        return f"torch {python.software.torch} of {python.python} sees none"
    if gpu.vendor == "amd" or installed.is_fallback or place.non_amd_gpu:
        return ""
    hint = "; --non-amd-gpu runs it in a test mode" if installed.backend is Backend.TRITON else ""
    return f"{gpu.device} is not an AMD GPU{hint}"


def _on_gpu(installed: InstalledPackage, place: ValidationContext) -> ComputeResult:
    gpu, software = place.python.gpu, place.python.software
    logger.info("computing on %s: compiling kernels takes a while", gpu.device)
    limits = _limits(installed, gpu.arch, software.triton)
    module = FALLBACK_TOLERANCE.module if installed.is_fallback else "flash_attn"
    options = ("--non-amd-gpu",) if place.non_amd_gpu else ()
    answer = _ask(
        place, NumericReport, NUMBERS_PROGRAM, module, "cuda", "full", *options, *(limit.argument for limit in limits)
    )
    # variables such as HIP_VISIBLE_DEVICES are not all passed on, so the program can see another GPU than the user
    here = gpu.text("no GPU")
    if isinstance(answer, str):
        check = made_check("GPU", None, f"{here}: the program ended before it reported its GPU")
    else:
        right = answer.gpu == gpu.arch
        check = made_check("GPU", right, here if right else f"computed on {answer.gpu or 'none'} instead of {here}")
    return _computed(software, (check,), answer, limits, _refused(installed), f"on {gpu.device}", gpu)


def _on_emulator(installed: InstalledPackage, place: ValidationContext, check: ValidationCheck) -> ComputeResult:
    """Execute the kernels that the user's Triton compiles."""
    python, arch = place.python, place.emulated_arch or DEFAULT_ARCH
    software = python.software
    missing = [name for name, there in (("Triton", software.triton), ("numpy", installed.has_numpy)) if not there]
    if software.triton is None or missing:
        why = f"{python.python} has no {' and no '.join(missing)}, which the emulator needs"
        return ComputeResult(software, (check, made_check("emulation", None, why)))
    triton = public_version(software.triton)
    logger.info("executing with Triton %s on an emulator of %s, a minute or two", triton, arch)
    limits = _limits(installed, arch, software.triton)
    variables = linker_environ(place.scratch, place.context.cache) if needs_linker(triton) else {}
    arguments = (arch, "first", "--order", "reversed", *(limit.argument for limit in limits))
    answer = _ask(place, EmulationReport, EXECUTE, *arguments, **variables)
    checks = (check, _emulation_check(answer, arch))
    return _computed(software, checks, answer, limits, _refused(installed), device_phrase(arch))


def _with_stand_in(
    wheel: Wheel, installed: InstalledPackage, place: ValidationContext, check: ValidationCheck
) -> ComputeResult:
    """Execute as the gate does: with the cell's Triton, and a CPU torch instead of ROCm's."""
    arch = place.emulated_arch or DEFAULT_ARCH
    try:
        if installed.record is None:
            raise InputError("no build record", wheel.path.name, "it names the Triton that compiles the kernels")
        cell = require_in_matrix(expand(place.context.matrix), Cell.parse(installed.record.cell))
    except InputError as error:
        return ComputeResult(place.python.software, (check, made_check("emulation", None, str(error))))
    subject = Subject(wheel, place.context, record=installed.record, cell=cell)
    message = "executing with Triton %s on an emulator of %s, about %d min on an idle machine, kept for the next time"
    logger.info(message, subject.triton, arch, predict_minutes(subject, 1))
    software = Software(python=PYTHON, torch=stand_in_torch_version(), triton=subject.triton)
    answer = emulate(subject, {arch: "first"})[arch]
    checks, limits = (check, _emulation_check(answer, arch)), find_cell_limits(subject, arch)
    return _computed(software, checks, answer, limits, refused_options(cell), device_phrase(arch), stand_in=True)


def _emulation_check(answer: EmulationReport | str, arch: str) -> ValidationCheck:
    """A check of each executed kernel, with its registers, memory and spills."""
    kernels = () if isinstance(answer, str) else answer.kernels
    lines = "; ".join(kernel.describe() for kernel in kernels)
    return made_check("emulation", bool(kernels), f"executed {device_phrase(arch)}: {lines or 'no kernel'}")


def _ask(
    place: ValidationContext, kind: type[AnyReport], program: Path, *arguments: str, **variables: str
) -> AnyReport | str:
    """The program's report, or why it has none."""
    user = place.context.environ
    chosen = {name: user[name] for name in _PASSED_ON if name in user}
    environ = {**device_environ(user), **chosen, **variables}
    return run_program((program, *arguments), kind, place.runner, environ, scratch=place.scratch, timeout=TIMEOUT)


def _limits(installed: InstalledPackage, arch: str | None, triton: str | None) -> tuple[KnownLimit, ...]:
    if installed.backend is not Backend.TRITON or triton is None:
        return ()
    return find_limits(public_version(installed.distribution.version), public_version(triton), arch)


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
