"""The torch of a Python -> whether it is one for ROCm, and the one that flash-attn was built for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from wheelfactory.doctor.diagnosis import (
    TAKE_FITTING,
    Diagnosis,
    dotted,
    install,
    install_torch,
    numbers,
    shown_torch,
    torch_index,
)
from wheelfactory.doctor.machine import Installed, Machine, Torch
from wheelfactory.doctor.origin import built_for_rocm, built_for_torch, is_compiled, rocm_of_its_torch, shown


def about_torch(machine: Machine) -> Iterator[Diagnosis]:
    """What is wrong with torch itself, for any flash-attn on an AMD GPU."""
    torch = machine.torch
    if torch is None:
        what = "this Python has no torch, which flash-attn needs"
        yield Diagnosis("no torch", what, rocm_torch(machine, machine.installed))
    elif torch.error:
        yield _not_imported(machine, torch)
    elif torch.hip is None:
        kind = f"a CUDA build (CUDA {torch.cuda})" if torch.cuda else "a CPU build"
        seen = f": `{machine.installed.error}`" if machine.installed and machine.installed.error else ""
        what = f"{shown_torch(machine)} is {kind}; flash-attn for an AMD GPU needs one that is built for ROCm{seen}"
        yield Diagnosis("torch is not for ROCm", what, rocm_torch(machine, machine.installed))


def _not_imported(machine: Machine, torch: Torch) -> Diagnosis:
    what = f"{shown_torch(machine)} does not import, so nothing that needs it does: `{torch.error}`"
    more = shlex.join([machine.python.executable, "-X", "faulthandler", "-c", "import torch"])
    index = torch_index(torch.version)
    if index is None:
        return Diagnosis("torch does not import", what, f"see more with: {more}")
    again = install(machine, "--force-reinstall", f"torch=={torch.version}", "--index-url", index)
    return Diagnosis("torch does not import", what, f"see more with: {more}; or install it again: {again}")


def rocm_torch(machine: Machine, installed: Installed | None) -> str:
    """The cure for a torch that is missing or not for ROCm: the one that flash-attn was built for, if that is known."""
    torch = built_for_torch(installed) if installed else None
    rocm = rocm_of_its_torch(installed) if installed else None
    if torch and rocm:
        return install_torch(machine, torch[0], rocm)
    return "install a torch for ROCm: the doctor prints the line when it is given a site"


def another_rocm(machine: Machine, installed: Installed, built: tuple[int, int] | None, said: str = "") -> Diagnosis:
    """For a flash-attn that is for another ROCm than torch; `built` is None if only an error shows that."""
    hip = machine.torch.hip if machine.torch else None
    wanted = f"ROCm {dotted(built)}" if built else "another ROCm"
    what = f"{shown(installed)} was built for {wanted}, {shown_torch(machine)} for HIP {hip}"
    return Diagnosis("another ROCm", f"{what}: {said}" if said else what, TAKE_FITTING)


def about_pair(machine: Machine, installed: Installed) -> Iterator[Diagnosis]:
    """Where a flash-attn that imports is not for this torch: pip was told not to look, or torch came later."""
    if machine.torch is None or machine.torch.hip is None or installed.error:
        return
    torch, built = built_for_torch(installed), built_for_rocm(installed)
    have, hip = numbers(machine.torch.version), numbers(machine.torch.hip)
    if torch and have and torch[0] != have:
        wanted, source = torch
        what = f"{shown(installed)} is for torch {dotted(wanted)} (as {source} says), you have {shown_torch(machine)}"
        rocm = rocm_of_its_torch(installed)
        instead = f"; or keep it and install its torch: {install_torch(machine, wanted, rocm)}" if rocm else ""
        yield Diagnosis("another torch", what, TAKE_FITTING + instead)
    elif built and hip and built != hip and is_compiled(installed):
        yield another_rocm(machine, installed, built)
