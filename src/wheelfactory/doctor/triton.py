"""What Triton a Python has -> what is wrong with that for a flash-attn whose kernels are Triton source."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from wheelfactory.doctor.diagnosis import (
    TAKE_FITTING,
    Diagnosis,
    dotted,
    installer_of,
    numbers,
    shown_torch,
    torch_index,
    uninstall,
)
from wheelfactory.doctor.facts import Facts
from wheelfactory.doctor.machine import Installed, Machine
from wheelfactory.doctor.origin import is_compiled, shown

VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"
"""flash-attn up to 2.8.3 takes its Triton backend if this is exactly TRUE, whatever the wheel was built for."""


def triton_in_use(machine: Machine, installed: Installed) -> bool:
    """Whether flash-attn uses Triton: a wheel that has nothing else, or a compiled one that is told to."""
    return not is_compiled(installed) or (installed.triton and machine.environ.get(VARIABLE) == "TRUE")


def find_tritons(machine: Machine, facts: Facts) -> list[tuple[str, str]]:
    """The Tritons that are installed, by name and version; ROCm's first."""
    return [(name, machine.packages[name]) for name in (*facts.rocm_tritons, "triton") if name in machine.packages]


def no_triton(machine: Machine, installed: Installed) -> Diagnosis:
    """For flash-attn that fails as there is no module triton."""
    torch = machine.torch
    index = torch_index(torch.version) if torch else None
    what = f"{shown(installed)} uses Triton, and this Python has none: `No module named 'triton'`"
    if torch is None or index is None:
        cure = f"install the Triton that {shown_torch(machine)} requires, from where that torch came"
        return Diagnosis("no Triton", what, cure)
    again = installer_of(machine).torch(f"torch=={torch.version}", index)  # torch stays, and what it lacks comes
    return Diagnosis("no Triton", what, shlex.join(again))


def outside_window(machine: Machine, installed: Installed, facts: Facts, said: str) -> Diagnosis:
    """For flash-attn whose kernels this Triton refused with the words `said`."""
    tritons = " and ".join(f"{name} {version}" for name, version in find_tritons(machine, facts))
    found = tritons or "a Triton without metadata"
    window = _window(installed, facts)
    if window is None:
        what = f"{shown(installed)} does not work with {found}: `{said}`"
        return Diagnosis("another Triton", what, TAKE_FITTING)
    first, end = window
    what = f"{shown(installed)} works with Triton {dotted(first)} and newer before {dotted(end)}, you have {found}"
    return Diagnosis("another Triton", f"{what}: `{said}`" if said else what, _replace_triton(machine, facts, window))


def _replace_triton(machine: Machine, facts: Facts, window: tuple[tuple[int, int], tuple[int, int]]) -> str:
    """PyPI's can be replaced by another; that of torch belongs to it, so the torch is what to change."""
    for name, version in find_tritons(machine, facts):
        if name in facts.rocm_tritons or "+" in version:  # that of AMD's own builds is triton 3.5.1+rocm7.1.1
            return (
                f"{shown_torch(machine)} brings {name} {version}: install a compiled wheel (ck), or another torch; "
                "the doctor prints the lines when it is given a site"
            )
    first, end = map(dotted, window)
    return shlex.join(installer_of(machine).exactly(f"triton>={first},<{end}"))


def _window(installed: Installed, facts: Facts) -> tuple[tuple[int, int], tuple[int, int]] | None:
    return facts.window(installed.version.partition("+")[0])


def about_triton(machine: Machine, installed: Installed, facts: Facts) -> Iterator[Diagnosis]:
    """What is wrong although the import may work."""
    tritons = find_tritons(machine, facts)
    if len(tritons) > 1:
        yield _overwritten(machine, facts, tritons)
    window = _window(installed, facts)
    versions = [numbers(version) for _, version in tritons]
    judged = len(tritons) == 1 and triton_in_use(machine, installed) and not installed.error
    if judged and window and versions[0] and not window[0] <= versions[0] < window[1]:
        yield outside_window(machine, installed, facts, "")
    if is_compiled(installed) and triton_in_use(machine, installed):
        what = f"{VARIABLE}=TRUE: {shown(installed)} uses Triton, not the kernels compiled into it"
        yield Diagnosis("Triton instead of compiled kernels", what, f"unset {VARIABLE}, unless you mean it")


def _overwritten(machine: Machine, facts: Facts, tritons: list[tuple[str, str]]) -> Diagnosis:
    """All of them are the folder ``triton``: what was installed last has written over the other."""
    both = " and ".join(f"{name} {version}" for name, version in tritons)
    torch = numbers(machine.torch.version) if machine.torch else None
    own = facts.torch(torch or (0, 0)).triton
    name, version = next((found for found in tritons if found[0] == own), tritons[0])
    what = f"{both} are both installed, and both are the folder triton: one has written over the other"
    others = uninstall(machine, *(other for other, _ in tritons if other != name))
    index = torch_index(machine.torch.version) if machine.torch else None
    installer = installer_of(machine)
    if index is None:  # PyPI has none of this version, and without the folder nothing of Triton would be left
        from_there = f"{name}=={version} from where {shown_torch(machine)} came, with {installer.reinstall} --no-deps"
        return Diagnosis("two Tritons", what, f"{others}; then install {from_there}")
    options = (installer.reinstall, "--no-deps", installer.only_index, index)
    again = shlex.join([*installer.install, *options, f"{name}=={version}"])
    return Diagnosis("two Tritons", what, f"{others} && {again}")
