"""The torch and the Triton of a Python -> what is wrong with them, for any flash-attn and for the one that it has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from wheelfactory.doctor.diagnosis import (
    TAKE_FITTING,
    TORCH_INDEX,
    Diagnosis,
    abi_age,
    dotted,
    installer_of,
    numbers,
    shown_torch,
    torch_index,
    uninstall,
)
from wheelfactory.doctor.facts import Facts
from wheelfactory.doctor.machine import Installed, Machine
from wheelfactory.doctor.origin import (
    built_for_rocm,
    built_for_torch,
    built_with_cxx11_abi,
    is_compiled,
    rocm_of_its_torch,
    shown,
)
from wheelfactory.wheel.elf.mangled import provider, readable, string_abi

VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"
"""flash-attn up to 2.8.3 takes its Triton backend if this is exactly TRUE, whatever the wheel was built for."""


def about_torch(machine: Machine) -> Iterator[Diagnosis]:
    """What is wrong with torch itself, for any flash-attn on an AMD GPU."""
    torch = machine.torch
    if torch is None:
        what = "this Python has no torch, which flash-attn needs"
        yield Diagnosis("no torch", what, rocm_torch(machine, machine.installed))
    elif torch.error:
        what = f"{shown_torch(machine)} does not import, so nothing that needs it does: `{torch.error}`"
        more = shlex.join([machine.python.executable, "-X", "faulthandler", "-c", "import torch"])
        cure, index = f"see more with: {more}", torch_index(torch.version)
        if index:
            again = installer_of(machine).torch(f"torch=={torch.version}", index, again=True)
            cure = f"{cure}; or install it again: {shlex.join(again)}"
        yield Diagnosis("torch does not import", what, cure)
    elif torch.hip is None:
        kind = f"a CUDA build (CUDA {torch.cuda})" if torch.cuda else "a CPU build"
        seen = f": `{machine.installed.error}`" if machine.installed and machine.installed.error else ""
        what = f"{shown_torch(machine)} is {kind}; flash-attn for an AMD GPU needs one that is built for ROCm{seen}"
        yield Diagnosis("torch is not for ROCm", what, rocm_torch(machine, machine.installed))


def rocm_torch(machine: Machine, installed: Installed | None) -> str:
    """The cure for a torch that is missing or not for ROCm: the one that flash-attn was built for, if that is known."""
    known = _install_its_torch(machine, installed) if installed else None
    return known or "install a torch for ROCm: the doctor prints the line when it is given a site"


def _install_its_torch(machine: Machine, installed: Installed) -> str | None:
    """The command that puts the torch it was built for in the place of the one that is there, if any."""
    torch, rocm = built_for_torch(installed), rocm_of_its_torch(installed)
    if torch is None or rocm is None:
        return None
    requirement, index = f"torch=={dotted(torch[0])}.*", f"{TORCH_INDEX}/rocm{rocm}"
    return shlex.join(installer_of(machine).torch(requirement, index, again=machine.torch is not None))


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
    other = _another_torch(machine, installed, "is for")
    built, hip = built_for_rocm(installed), numbers(machine.torch.hip)
    if other:
        yield other
    elif built and hip and built != hip and is_compiled(installed):
        yield another_rocm(machine, installed, built)


def _another_torch(machine: Machine, installed: Installed, verb: str, said: str = "") -> Diagnosis | None:
    """For a flash-attn that `verb` another torch, if something says which."""
    built = built_for_torch(installed)
    have = numbers(machine.torch.version) if machine.torch else None
    if built is None or have is None or built[0] == have:
        return None
    wanted, source = built
    what = f"{shown(installed)} {verb} torch {dotted(wanted)} (as {source} says), you have {shown_torch(machine)}{said}"
    command = _install_its_torch(machine, installed)
    instead = f"; or keep it and install its torch: {command}" if command else ""
    return Diagnosis("another torch", what, TAKE_FITTING + instead)


def explain_symbol(machine: Machine, installed: Installed, symbol: str) -> Diagnosis | None:
    """Why the loader does not find `symbol`; None if neither it nor flash-attn tells enough.

    That flash-attn is for another torch is certain; a symbol of torch alone says only that it is not for this one.
    """
    said = f"`undefined symbol: {readable(symbol)}`"
    return (
        _another_torch(machine, installed, "was built for", f": {said}")
        or _another_abi(machine, installed, symbol, said)
        or _another_library(machine, installed, symbol, said)
    )


def _another_abi(machine: Machine, installed: Installed, symbol: str, said: str) -> Diagnosis | None:
    """The C++ ABI of a wheel is that of the strings in its symbols: torch for ROCm has the new one from 2.6 on."""
    has = machine.torch.cxx11_abi if machine.torch else None
    abi = string_abi(symbol)
    wants = built_with_cxx11_abi(installed) if abi is None else abi == "new"
    if has is None or wants is None or has == wants:
        return None
    what = (
        f"{shown(installed)} was built with the {abi_age(new=wants)} C++ ABI (_GLIBCXX_USE_CXX11_ABI={int(wants)}), "
        f"{shown_torch(machine)} has the {abi_age(new=has)} one ({int(has)}): {said}"
    )
    return Diagnosis("another C++ ABI", what, TAKE_FITTING)


def _another_library(machine: Machine, installed: Installed, symbol: str, said: str) -> Diagnosis | None:
    found = {
        "torch": ("another torch", f"against another torch than {shown_torch(machine)}"),
        "HIP": ("another ROCm", f"against another ROCm than the one that {shown_torch(machine)} has"),
        "Python": ("another Python", f"for another Python than {machine.python.version}"),
    }.get(provider(symbol))
    return Diagnosis(found[0], f"{shown(installed)} was built {found[1]}: {said}", TAKE_FITTING) if found else None


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
    window = facts.window(installed.version)
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


def about_triton(machine: Machine, installed: Installed, facts: Facts) -> Iterator[Diagnosis]:
    """What is wrong although the import may work."""
    tritons = find_tritons(machine, facts)
    if len(tritons) > 1:
        yield _overwritten(machine, facts, tritons)
    window = facts.window(installed.version)
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
