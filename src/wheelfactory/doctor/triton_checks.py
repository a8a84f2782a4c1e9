"""Check the Triton of a Python, alone and against the installed torch and flash-attn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wheelfactory.core.label import TorchOrigin
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.installed_flash_attn import is_compiled
from wheelfactory.doctor.machine import (
    INSTALL_MATCHING_WHEEL,
    Diagnosis,
    InstalledFlashAttn,
    Machine,
    find_major_minor,
    format_major_minor,
    uninstall_command,
)
from wheelfactory.doctor.torch_checks import from_own_index

TRITON_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"
"""flash-attn up to 2.8.3 uses its Triton backend if this is exactly ``TRUE``, in compiled wheels too."""


def uses_triton(machine: Machine, installed: InstalledFlashAttn) -> bool:
    """Whether flash-attn uses Triton: a Triton wheel, or a compiled wheel with `TRITON_VARIABLE` set."""
    is_on = machine.environ.get(TRITON_VARIABLE) == "TRUE"
    return not is_compiled(installed) or (installed.has_triton_backend and is_on)


def find_tritons(machine: Machine, facts: DoctorFacts) -> list[tuple[str, str]]:
    """Return (name, version) of the installed Triton distributions, those for ROCm first."""
    names = (*facts.rocm_triton_packages, "triton")
    return [(name, machine.packages[name]) for name in names if name in machine.packages]


def diagnose_missing_triton(machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts) -> Diagnosis:
    """Report that flash-attn fails because the module triton is missing."""
    what = f"{installed} needs Triton, which is not installed: `No module named 'triton'`"
    return Diagnosis("no Triton", what, from_own_index(machine, facts, own_triton(machine, facts)))


def own_triton(machine: Machine, facts: DoctorFacts) -> str:
    """Return the Triton that the installed torch requires: ``triton-rocm==3.7.1``; of AMD's builds only the name."""
    torch = machine.torch
    version = torch.minor if torch else None
    if torch is None or version is None or torch.origin is not TorchOrigin.PYTORCH:
        return "triton"
    known = facts.find_torch(version)
    return f"{known.triton_package}=={known.triton}" if known.torch == version else known.triton_package


def diagnose_triton_version(
    machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts, error: str
) -> Diagnosis:
    """Report a Triton that cannot compile the kernels of this flash-attn; `error` is Triton's message, if any."""
    tritons = find_tritons(machine, facts)
    found = _name_all(tritons) or "a Triton without metadata"
    window = facts.find_triton_window(installed.version)
    if window is None:
        return Diagnosis("unsupported Triton", f"{installed} does not work with {found}: `{error}`")
    have = find_major_minor(tritons[0][1]) if tritons else None
    what = "needs Triton >={},<{}, you have {}".format(*map(format_major_minor, window), found)
    if have and window[0] <= have < window[1]:
        what = f"fails in {found}, which is damaged or not the one that torch requires"
    quoted = f": `{error}`" if error else ""
    wanted = own_triton(machine, facts)
    pinned = find_major_minor(wanted.partition("==")[2])
    # if torch's own Triton is too old or too new, only another torch brings one
    fits = pinned is None or window[0] <= pinned < window[1]
    remedy = from_own_index(machine, facts, wanted) if fits else INSTALL_MATCHING_WHEEL
    return Diagnosis("unsupported Triton", f"{installed} {what}{quoted}", remedy)


def _name_all(tritons: Sequence[tuple[str, str]]) -> str:
    return " and ".join(f"{name} {version}" for name, version in tritons)


def check_triton(machine: Machine, installed: InstalledFlashAttn | None, facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Yield problems with Triton, including those that do not prevent the import."""
    tritons = find_tritons(machine, facts)
    if len(tritons) > 1 and (installed or (machine.torch and machine.torch.hip)):
        yield _overwritten(machine, facts, tritons)
    if installed is None:
        return
    window = facts.find_triton_window(installed.version)
    versions = [find_major_minor(version) for _, version in tritons]
    is_checkable = len(tritons) == 1 and uses_triton(machine, installed) and not installed.error
    if is_checkable and window and versions[0] and not window[0] <= versions[0] < window[1]:
        yield diagnose_triton_version(machine, installed, facts, "")
    if is_compiled(installed) and uses_triton(machine, installed):
        what = f"{TRITON_VARIABLE}=TRUE makes {installed} use Triton instead of its compiled kernels"
        remedy = f"unset {TRITON_VARIABLE}, then it uses them (leave it set if you want Triton)"
        yield Diagnosis("Triton overrides compiled kernels", what, remedy)


def _overwritten(machine: Machine, facts: DoctorFacts, tritons: Sequence[tuple[str, str]]) -> Diagnosis:
    what = f"{_name_all(tritons)} are both installed into the directory triton, so one has overwritten the other"
    wanted, versions = own_triton(machine, facts).partition("==")[0], dict(tritons)
    own = wanted if wanted != "triton" and wanted in versions else tritons[0][0]
    others = uninstall_command(machine, *(name for name in versions if name != own))
    again = from_own_index(machine, facts, f"{own}=={versions[own]}")
    joint = "; then " if again.startswith("keep torch") else " && "
    return Diagnosis("two Tritons installed", what, f"{others}{joint}{again}")
