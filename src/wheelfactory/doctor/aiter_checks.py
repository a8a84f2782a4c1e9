"""Check the aiter that a preview's Triton wheel takes its kernels from: this factory's, or AMD's.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from wheelfactory.core.cell import AITER_NAME, local_version
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label, is_own_aiter
from wheelfactory.doctor.machine import (
    INSTALL_MATCHING_WHEEL,
    Diagnosis,
    InstalledFlashAttn,
    Machine,
    uninstall_command,
)
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.triton_checks import TRITON_VARIABLE

TRITON_ONLY_VARIABLE = "AITER_TRITON_ONLY"

FORMER_NAME = "aiter"
"""The name of AMD's distribution before `AITER_NAME`, with the same folder. pip does not know that they are one."""

_RELEASES = "https://github.com/ROCm/aiter/releases"


def uses_aiter(installed: InstalledFlashAttn) -> bool:
    """Whether the installed flash-attn is a wheel of this factory that takes its kernels from aiter."""
    with suppress(InputError):
        return Label.parse(local_version(installed.version)).uses_aiter
    return False


def format_aiter(version: str) -> str:
    """Return an installed aiter for a message, with who built it."""
    return f"{version}, {'Triton only, of this factory' if is_own_aiter(version) else 'not of this factory'}"


def explain_aiter_error(machine: Machine, installed: InstalledFlashAttn) -> Iterator[Diagnosis]:
    """Yield why flash-attn does not import if the installed aiter, its absence or a variable is the cause."""
    if "[aiter] build" in installed.error:
        yield _aiter_build(machine, installed)
    if not uses_aiter(installed):
        # upstream's own build, with an aiter that is broken or of another version
        for project in _installed_names(machine) if re.search(r"\baiter[/.]", installed.error) else ():
            what = f"{installed} imports {project} {machine.packages[project]}, which fails: `{installed.error}`"
            yield Diagnosis("aiter does not import", what, f"install the one for this torch ({_RELEASES})")
        return
    error, version = installed.error, machine.packages.get(AITER_NAME)
    if "aiter, which is not installed" in error or "No module named 'aiter'" in error:
        what = f"{installed} takes its Triton kernels from {AITER_NAME}, which is not installed"
        yield Diagnosis("no aiter", what)
    elif "has no kernels for this flash-attn" in error:
        found = " and ".join(f"{project} {machine.packages[project]}" for project in _installed_names(machine))
        what = f"{installed} takes its Triton kernels from {AITER_NAME}, and the installed {found or 'aiter'} has none"
        remedy = f"install a newer one of AMD's ({_RELEASES}); or {_replace_by_ours(machine)}"
        yield Diagnosis("aiter does not fit", f"{what} for it", remedy)
    elif version and is_own_aiter(version):
        for variable, wrong in ((TRITON_VARIABLE, "TRUE"), (TRITON_ONLY_VARIABLE, "0")):
            if machine.environ.get(variable) == wrong:
                what = f"{variable}={wrong} makes aiter look for ROCm modules that this one lacks"
                yield Diagnosis("variable bypasses the wheel", f"{what}: `{error}`", f"unset {variable}")


def _aiter_build(machine: Machine, installed: InstalledFlashAttn) -> Diagnosis:
    what = f"aiter compiles a module when it is imported, and that failed: `{installed.error}`"
    remedy = "read the compiler's output above that line; ROCM_PATH must name a ROCm with headers and libraries"
    if "rocm-sdk-core" in machine.packages:
        what = f"{what}; ROCm comes from pip here, where the linker does not find it by itself"
        devel = f"'rocm[devel]=={machine.packages['rocm-sdk-core']}'"
        remedy = f"install {devel} from the index of torch, then `export ROCM_PATH=$(rocm-sdk path --root)`"
    return Diagnosis("aiter does not compile", what, remedy)


def explain_other_aiter(machine: Machine, installed: InstalledFlashAttn) -> Iterator[Diagnosis]:
    """Yield the last explanation of an import error: an aiter of AMD's that does not import."""
    for project in _installed_names(machine):
        version = machine.packages[project]
        if uses_aiter(installed) and not is_own_aiter(version):
            what = f"{project} {format_aiter(version)}, does not import: `{installed.error}`"
            remedy = f"repair it, if other programs need its ROCm modules; else {_replace_by_ours(machine)}"
            yield Diagnosis("aiter does not import", what, remedy)


def check_aiter(machine: Machine) -> Iterator[Diagnosis]:
    """Yield two distributions that overwrite each other."""
    version, other = machine.packages.get(AITER_NAME), machine.packages.get(FORMER_NAME)
    if version and other:
        both = f"{AITER_NAME} {format_aiter(version)}, and {FORMER_NAME} {other}"
        what = f"{both} are both installed into the directory aiter, so one has overwritten the other"
        again = f"{uninstall_command(machine, AITER_NAME, FORMER_NAME)}; then reinstall one of them"
        yield Diagnosis("two aiter installs", what, again)


def find_overwritten_aiter(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    """Yield why a wheel must not be installed: the aiter that it requires would overwrite one under the former name."""
    former = machine.packages.get(FORMER_NAME)
    if wheel.built.uses_aiter and former and AITER_NAME not in machine.packages:
        remedy = f"run `{uninstall_command(machine, FORMER_NAME)}` first"
        yield f"requires {AITER_NAME}, which would overwrite the installed {FORMER_NAME} {former}: {remedy}"


def _installed_names(machine: Machine) -> tuple[str, ...]:
    """The names under which aiter is installed."""
    return tuple(project for project in (AITER_NAME, FORMER_NAME) if project in machine.packages)


def _replace_by_ours(machine: Machine) -> str:
    names = _installed_names(machine) or (AITER_NAME,)
    return f"{uninstall_command(machine, *names)}; then {INSTALL_MATCHING_WHEEL}"
