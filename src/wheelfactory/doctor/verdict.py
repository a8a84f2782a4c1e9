"""The verdict on a machine: works, install this, cannot, or fix this first; and which systems cannot. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from wheelfactory.core.cell import Backend, major_minor, name_python, public_version
from wheelfactory.core.label import TorchOrigin
from wheelfactory.core.published import version_key
from wheelfactory.core.support import Answer
from wheelfactory.doctor.advice import find_torch
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import Fit, JudgedWheel
from wheelfactory.doctor.gpu_match import format_gpu, gpu_warnings, list_visible_gpus, uses_nvidia, visible_archs
from wheelfactory.doctor.installed_flash_attn import is_fallback
from wheelfactory.doctor.machine import INSTALL_MATCHING_WHEEL, INSTALL_TORCH, Diagnosis, Machine, find_major_minor
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.triton_checks import uses_triton

_GLIBC = "2.28"
"""The oldest glibc that PyTorch's torch for ROCm supports: its wheels are manylinux_2_28."""


class VerdictKind(str, Enum):
    """The four answers."""

    KEEP = "works-keep"
    INSTALL = "install"
    CANNOT = "cannot"
    FIX = "fix-first"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Verdict:
    """The answer, and the line that says it."""

    kind: VerdictKind
    line: str


@dataclass(frozen=True)
class Wanted:
    """The wheels that were asked for; None for any."""

    backend: Backend | None = None
    flash_attn: str | None = None

    def is_met(self, machine: Machine) -> bool:
        """Whether the installed flash-attn is one of them; the fallback named flash-attn has no backend."""
        installed = machine.flash_attn
        if installed is None or (self.backend and is_fallback(installed)):
            return False
        backend = Backend.TRITON if uses_triton(machine, installed) else Backend.CK
        versions = (None, installed.version, public_version(installed.version))
        return self.backend in (None, backend) and self.flash_attn in versions


def check_system(machine: Machine, facts: DoctorFacts, fit: Fit | None) -> Iterator[Diagnosis]:
    """Yield why neither torch for ROCm nor a wheel can run here; nothing if a wheel fits the torch for ROCm here."""
    python = machine.python
    if python.system == "Windows":
        remedy = "if AMD's guide lists your GPU, install WSL (`wsl --install`) and ROCm for it; run the doctor there"
        yield Diagnosis("Windows", "the wheels are for Linux, and this is Windows", remedy)
    elif python.system == "Darwin":
        yield Diagnosis("macOS", "a Mac has no ROCm", "use a Linux machine with an AMD GPU")
    elif uses_nvidia(machine, facts):
        what = f"{machine.torch} uses an NVIDIA GPU, and the wheels are for AMD GPUs"
        yield Diagnosis("NVIDIA", what, "install flash-attn from PyPI")
    elif (fit and not fit.fitting) or machine.torch is None or machine.torch.hip is None:
        yield from _check_python(machine, facts, fit)


def _check_python(machine: Machine, facts: DoctorFacts, fit: Fit | None) -> Iterator[Diagnosis]:
    python, pythons = machine.python, facts.support.axes["python"]
    newest, oldest = pythons[0], pythons[-1]
    way = f"use CPython {oldest} to {newest}"
    have = find_major_minor(python.version) or (0, 0)
    if python.machine != "x86_64":
        what = f"PyTorch builds torch for ROCm for x86_64 only, and this machine is {python.machine}"
        yield Diagnosis("machine", what, "use an x86_64 machine")
    elif not python.tag.startswith("cp"):
        yield Diagnosis("Python", f"there is no torch for {name_python(python.tag)}", way)
    elif python.tag.endswith("t"):
        what = f"this factory never tried flash-attn on free-threaded Python ({name_python(python.tag)})"
        yield Diagnosis("Python", what, f"{way}, not free-threaded")
    elif python.glibc is None:
        what = "this system has no glibc (musl?), which torch for ROCm needs"
        yield Diagnosis("C library", what, "use a distribution with glibc, or a container such as rocm/pytorch")
    elif version_key(python.glibc) < version_key(_GLIBC):
        what = f"torch for ROCm needs glibc {_GLIBC}, and this system has {python.glibc}"
        yield Diagnosis("C library", what, "use a newer Linux distribution, or a container such as rocm/pytorch")
    elif not major_minor(oldest) <= have <= major_minor(newest) and not (fit and fit.with_other_torch):
        yield Diagnosis("Python", f"no torch for ROCm is known for Python {'.'.join(map(str, have))}", way)


def needs_own_fix(diagnosis: Diagnosis) -> bool:
    """Whether a problem has a remedy of its own, not only another wheel or torch."""
    return not diagnosis.remedy.startswith((INSTALL_MATCHING_WHEEL, INSTALL_TORCH))


def find_verdict(
    machine: Machine,
    diagnoses: Sequence[Diagnosis],
    unsupported: Sequence[Diagnosis],
    fit: Fit | None,
    wanted: Wanted,
    facts: DoctorFacts,
) -> Verdict:
    """Return the verdict; `unsupported`: why nothing can run on this system. `fit`: None without a site."""
    installed = machine.flash_attn
    promised = fit is not None and bool(fit.fitting) and not any(gpu_warnings(fit.fitting[0], machine, facts))
    is_wanted = fit is None or (wanted.is_met(machine) and not (is_fallback(installed) and promised))
    if installed and not installed.error and not diagnoses and is_wanted:
        line = f"Works; keep it: {installed} imports with {machine.torch}{_on_gpus(machine)}."
        return Verdict(VerdictKind.KEEP, line)
    if unsupported:
        return Verdict(VerdictKind.CANNOT, f"Cannot, because {unsupported[0].what}.")
    if first := next(filter(needs_own_fix, diagnoses), None):
        keep = f"; keep {installed}" if installed and not installed.error else ""
        return Verdict(VerdictKind.FIX, f"Fix this first: {first.what}{keep}")
    if fit is None:
        line = diagnoses[0].what if diagnoses else "no site was given, so no wheel was looked up."
        return Verdict(VerdictKind.FIX if diagnoses else VerdictKind.CANNOT, line[:1].upper() + line[1:])
    if fit.fitting or fit.with_other_torch:
        wheel = fit.fitting[0] if fit.fitting else fit.with_other_torch
        assert wheel
        old = "; it replaces the fallback, which has no kernels" if is_fallback(installed) else ""
        torch = f"for {machine.torch}" if fit.fitting else "with another torch"
        line = f"Install this: {name_wheel(wheel)}, {torch}{_on_gpus(machine)}{old}"
        why = "" if fit.fitting or diagnoses else _without_wheel(machine, fit)
        return Verdict(VerdictKind.INSTALL, f"{line}, because {why}." if why else f"{line}.")
    instead = f" Without --backend and --flash-attn, {name_wheel(fit.unfiltered)}, fits." if fit.unfiltered else ""
    return Verdict(VerdictKind.CANNOT, f"Cannot, because {_why_none(machine, diagnoses, fit, wanted, facts)}.{instead}")


def name_wheel(wheel: PublishedWheel) -> str:
    """Return a wheel for a message: ``flash-attn 2.8.3, Triton backend``."""
    return f"flash-attn {public_version(wheel.version)}, {wheel.built.backend.display_name} backend"


def _on_gpus(machine: Machine) -> str:
    archs = () if machine.torch and machine.torch.cuda and machine.torch.sees_gpu else visible_archs(machine)
    return f" on {', '.join(archs)}" if archs else ""


def _why_none(machine: Machine, diagnoses: Sequence[Diagnosis], fit: Fit, wanted: Wanted, facts: DoctorFacts) -> str:
    """Return why no wheel of the site fits, in one clause."""
    torch, gpus = machine.torch, list(dict.fromkeys(list_visible_gpus(machine)))
    if not fit.near_misses:
        asked = [f"flash-attn {wanted.flash_attn}"] if wanted.flash_attn else []
        asked += [f"the {wanted.backend.display_name} backend"] if wanted.backend else []
        known = ", ".join(name for name in facts.support.axes["flash-attn"])
        return f"this site has no wheel of {' with '.join(asked) or 'flash-attn'}; the matrix has {known}"
    unknown = [format_gpu(*gpu) for gpu in gpus if gpu[0] not in facts.support.axes["gpu"]]
    if code := next((one.what for one in diagnoses if one.name == "no code in torch"), None):
        return code if find_torch(machine, facts) else f"{code}; no torch with a wheel has; AMD does not support it"
    if unknown and len(unknown) == len(gpus):
        return f"no wheel supports {', '.join(unknown)}, which this factory does not know"
    judged = [facts.support.find_support({"gpu": arch, "backend": Backend.TRITON.value}) for arch, _ in gpus]
    if (torch is None or torch.hip is None) and judged and all(one.answer is Answer.DOES_NOT_WORK for one in judged):
        return judged[0].reasons[0]
    if why := _without_wheel(machine, fit):
        return why
    closest, have = fit.near_misses[0], machine.torch_minor
    has_torch = have is not None and torch is not None and facts.find_rocm(torch) is not None
    same = [miss for miss in fit.near_misses if miss.wheel.built.torch == have]
    best = min(same, key=_plainness) if has_torch and same else closest
    return f"no wheel of this site fits: {'; '.join(best.reasons)}"


def _without_wheel(machine: Machine, fit: Fit) -> str:
    """Say that no wheel is for the version of the installed torch; empty if there is one."""
    torch, have = machine.torch, machine.torch_minor
    if torch is None or have is None or have in {miss.wheel.built.torch for miss in fit.near_misses}:
        return ""
    what = "" if torch.origin in (TorchOrigin.PYTORCH, TorchOrigin.OTHER) else f", {torch.origin.value}"
    return f"no wheel is for torch {have[0]}.{have[1]} (you have {torch.version}{what})"


def _plainness(miss: JudgedWheel) -> tuple[int, bool]:
    # a Triton wheel fits more GPUs than a CK wheel, so its reasons say more
    return len(miss.reasons), miss.wheel.machine is not None
