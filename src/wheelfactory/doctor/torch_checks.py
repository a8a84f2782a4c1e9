"""The torch and the Triton of a Python -> what is wrong with them, for any flash-attn and for the one that it has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from wheelfactory.doctor.diagnosis import (
    INSTALL_MATCHING_WHEEL,
    TORCH_INDEX,
    Diagnosis,
    abi_age,
    choose_installer,
    find_major_minor,
    find_torch_index,
    format_major_minor,
    format_torch,
    uninstall_command,
)
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.machine import InstalledFlashAttn, Machine
from wheelfactory.doctor.origin import (
    find_build_cxx11_abi,
    find_build_rocm,
    find_build_torch,
    find_build_torch_rocm,
    format_flash_attn,
    is_compiled,
)
from wheelfactory.wheel.elf.mangled import find_string_abi, format_symbol, guess_provider

TRITON_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"
"""flash-attn up to 2.8.3 takes its Triton backend if this is exactly TRUE, whatever the wheel was built for."""


def check_torch(machine: Machine) -> Iterator[Diagnosis]:
    """What is wrong with torch itself, for any flash-attn on an AMD GPU."""
    torch = machine.torch
    if torch is None:
        what = "this Python has no torch, which flash-attn needs"
        yield Diagnosis("no torch", what, torch_remedy(machine, machine.flash_attn))
    elif torch.error:
        what = f"{format_torch(machine)} does not import, so nothing that needs it does: `{torch.error}`"
        more = shlex.join([machine.python.executable, "-X", "faulthandler", "-c", "import torch"])
        cure, index = f"see more with: {more}", find_torch_index(torch.version)
        if index:
            again = choose_installer(machine).install_torch(f"torch=={torch.version}", index, again=True)
            cure = f"{cure}; or install it again: {shlex.join(again)}"
        yield Diagnosis("torch does not import", what, cure)
    elif torch.hip is None:
        kind = f"a CUDA build (CUDA {torch.cuda})" if torch.cuda else "a CPU build"
        seen = f": `{machine.flash_attn.error}`" if machine.flash_attn and machine.flash_attn.error else ""
        what = f"{format_torch(machine)} is {kind}; flash-attn for an AMD GPU needs one that is built for ROCm{seen}"
        yield Diagnosis("torch is not for ROCm", what, torch_remedy(machine, machine.flash_attn))


def torch_remedy(machine: Machine, installed: InstalledFlashAttn | None) -> str:
    """The cure for a torch that is missing or not for ROCm: the one that flash-attn was built for, if that is known."""
    known = _install_its_torch(machine, installed) if installed else None
    return known or "install a torch for ROCm: the doctor prints the line when it is given a site"


def _install_its_torch(machine: Machine, installed: InstalledFlashAttn) -> str | None:
    """The command that puts the torch it was built for in the place of the one that is there, if any."""
    torch, rocm = find_build_torch(installed), find_build_torch_rocm(installed)
    if torch is None or rocm is None:
        return None
    requirement, index = f"torch=={format_major_minor(torch[0])}.*", f"{TORCH_INDEX}/rocm{rocm}"
    return shlex.join(choose_installer(machine).install_torch(requirement, index, again=machine.torch is not None))


def diagnose_rocm_mismatch(
    machine: Machine, installed: InstalledFlashAttn, built: tuple[int, int] | None, said: str = ""
) -> Diagnosis:
    """For a flash-attn that is for another ROCm than torch; `built` is None if only an error shows that."""
    hip = machine.torch.hip if machine.torch else None
    wanted = f"ROCm {format_major_minor(built)}" if built else "another ROCm"
    what = f"{format_flash_attn(installed)} was built for {wanted}, {format_torch(machine)} for HIP {hip}"
    return Diagnosis("another ROCm", f"{what}: {said}" if said else what, INSTALL_MATCHING_WHEEL)


def check_torch_match(machine: Machine, installed: InstalledFlashAttn) -> Iterator[Diagnosis]:
    """Where a flash-attn that imports is not for this torch: pip was told not to look, or torch came later."""
    if machine.torch is None or machine.torch.hip is None or installed.error:
        return
    other = _another_torch(machine, installed, "is for")
    built, hip = find_build_rocm(installed), find_major_minor(machine.torch.hip)
    if other:
        yield other
    elif built and hip and built != hip and is_compiled(installed):
        yield diagnose_rocm_mismatch(machine, installed, built)


def _another_torch(machine: Machine, installed: InstalledFlashAttn, verb: str, said: str = "") -> Diagnosis | None:
    """For a flash-attn that `verb` another torch, if something says which."""
    built = find_build_torch(installed)
    have = find_major_minor(machine.torch.version) if machine.torch else None
    if built is None or have is None or built[0] == have:
        return None
    wanted, source = built
    what = f"{format_flash_attn(installed)} {verb} torch {format_major_minor(wanted)} (as {source} says), you have {format_torch(machine)}{said}"
    command = _install_its_torch(machine, installed)
    instead = f"; or keep it and install its torch: {command}" if command else ""
    return Diagnosis("another torch", what, INSTALL_MATCHING_WHEEL + instead)


def diagnose_undefined_symbol(machine: Machine, installed: InstalledFlashAttn, symbol: str) -> Diagnosis | None:
    """Why the loader does not find `symbol`; None if neither it nor flash-attn tells enough.

    That flash-attn is for another torch is certain; a symbol of torch alone says only that it is not for this one.
    """
    said = f"`undefined symbol: {format_symbol(symbol)}`"
    return (
        _another_torch(machine, installed, "was built for", f": {said}")
        or _another_abi(machine, installed, symbol, said)
        or _another_library(machine, installed, symbol, said)
    )


def _another_abi(machine: Machine, installed: InstalledFlashAttn, symbol: str, said: str) -> Diagnosis | None:
    """The C++ ABI of a wheel is that of the strings in its symbols: torch for ROCm has the new one from 2.6 on."""
    has = machine.torch.cxx11_abi if machine.torch else None
    abi = find_string_abi(symbol)
    wants = find_build_cxx11_abi(installed) if abi is None else abi == "new"
    if has is None or wants is None or has == wants:
        return None
    what = (
        f"{format_flash_attn(installed)} was built with the {abi_age(new=wants)} C++ ABI (_GLIBCXX_USE_CXX11_ABI={int(wants)}), "
        f"{format_torch(machine)} has the {abi_age(new=has)} one ({int(has)}): {said}"
    )
    return Diagnosis("another C++ ABI", what, INSTALL_MATCHING_WHEEL)


def _another_library(machine: Machine, installed: InstalledFlashAttn, symbol: str, said: str) -> Diagnosis | None:
    found = {
        "torch": ("another torch", f"against another torch than {format_torch(machine)}"),
        "HIP": ("another ROCm", f"against another ROCm than the one that {format_torch(machine)} has"),
        "Python": ("another Python", f"for another Python than {machine.python.version}"),
    }.get(guess_provider(symbol))
    return (
        Diagnosis(found[0], f"{format_flash_attn(installed)} was built {found[1]}: {said}", INSTALL_MATCHING_WHEEL)
        if found
        else None
    )


def uses_triton(machine: Machine, installed: InstalledFlashAttn) -> bool:
    """Whether flash-attn uses Triton: a wheel that has nothing else, or a compiled one that is told to."""
    return not is_compiled(installed) or (
        installed.has_triton_backend and machine.environ.get(TRITON_VARIABLE) == "TRUE"
    )


def find_tritons(machine: Machine, facts: DoctorFacts) -> list[tuple[str, str]]:
    """The Tritons that are installed, by name and version; ROCm's first."""
    return [
        (name, machine.packages[name]) for name in (*facts.rocm_triton_packages, "triton") if name in machine.packages
    ]


def diagnose_missing_triton(machine: Machine, installed: InstalledFlashAttn) -> Diagnosis:
    """For flash-attn that fails as there is no module triton."""
    torch = machine.torch
    index = find_torch_index(torch.version) if torch else None
    what = f"{format_flash_attn(installed)} uses Triton, and this Python has none: `No module named 'triton'`"
    if torch is None or index is None:
        cure = f"install the Triton that {format_torch(machine)} requires, from where that torch came"
        return Diagnosis("no Triton", what, cure)
    again = choose_installer(machine).install_torch(
        f"torch=={torch.version}", index
    )  # torch stays, and what it lacks comes
    return Diagnosis("no Triton", what, shlex.join(again))


def diagnose_triton_version(
    machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts, said: str
) -> Diagnosis:
    """For flash-attn whose kernels this Triton refused with the words `said`."""
    tritons = " and ".join(f"{name} {version}" for name, version in find_tritons(machine, facts))
    found = tritons or "a Triton without metadata"
    window = facts.find_triton_window(installed.version)
    if window is None:
        what = f"{format_flash_attn(installed)} does not work with {found}: `{said}`"
        return Diagnosis("another Triton", what, INSTALL_MATCHING_WHEEL)
    first, end = window
    what = f"{format_flash_attn(installed)} works with Triton {format_major_minor(first)} and newer before {format_major_minor(end)}, you have {found}"
    return Diagnosis("another Triton", f"{what}: `{said}`" if said else what, _replace_triton(machine, facts, window))


def _replace_triton(machine: Machine, facts: DoctorFacts, window: tuple[tuple[int, int], tuple[int, int]]) -> str:
    """PyPI's can be replaced by another; that of torch belongs to it, so the torch is what to change."""
    for name, version in find_tritons(machine, facts):
        if name in facts.rocm_triton_packages or "+" in version:  # that of AMD's own builds is triton 3.5.1+rocm7.1.1
            return (
                f"{format_torch(machine)} brings {name} {version}: install a compiled wheel (ck), or another torch; "
                "the doctor prints the lines when it is given a site"
            )
    first, end = map(format_major_minor, window)
    return shlex.join(choose_installer(machine).install_without_dependencies(f"triton>={first},<{end}"))


def check_triton(machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts) -> Iterator[Diagnosis]:
    """What is wrong although the import may work."""
    tritons = find_tritons(machine, facts)
    if len(tritons) > 1:
        yield _overwritten(machine, facts, tritons)
    window = facts.find_triton_window(installed.version)
    versions = [find_major_minor(version) for _, version in tritons]
    judged = len(tritons) == 1 and uses_triton(machine, installed) and not installed.error
    if judged and window and versions[0] and not window[0] <= versions[0] < window[1]:
        yield diagnose_triton_version(machine, installed, facts, "")
    if is_compiled(installed) and uses_triton(machine, installed):
        what = f"{TRITON_VARIABLE}=TRUE: {format_flash_attn(installed)} uses Triton, not the kernels compiled into it"
        yield Diagnosis("Triton instead of compiled kernels", what, f"unset {TRITON_VARIABLE}, unless you mean it")


def _overwritten(machine: Machine, facts: DoctorFacts, tritons: list[tuple[str, str]]) -> Diagnosis:
    """All of them are the folder ``triton``: what was installed last has written over the other."""
    both = " and ".join(f"{name} {version}" for name, version in tritons)
    torch = find_major_minor(machine.torch.version) if machine.torch else None
    own = facts.find_torch(torch or (0, 0)).triton_package
    name, version = next((found for found in tritons if found[0] == own), tritons[0])
    what = f"{both} are both installed, and both are the folder triton: one has written over the other"
    others = uninstall_command(machine, *(other for other, _ in tritons if other != name))
    index = find_torch_index(machine.torch.version) if machine.torch else None
    installer = choose_installer(machine)
    if index is None:  # PyPI has none of this version, and without the folder nothing of Triton would be left
        from_there = (
            f"{name}=={version} from where {format_torch(machine)} came, with {installer.reinstall_option} --no-deps"
        )
        return Diagnosis("two Tritons", what, f"{others}; then install {from_there}")
    options = (installer.reinstall_option, "--no-deps", installer.index_option, index)
    again = shlex.join([*installer.install_command, *options, f"{name}=={version}"])
    return Diagnosis("two Tritons", what, f"{others} && {again}")
