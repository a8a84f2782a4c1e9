"""Check the torch and the Triton of a Python, alone and against the installed flash-attn."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from wheelfactory.doctor.diagnosis import (
    INSTALL_MATCHING_WHEEL,
    INSTALL_TORCH,
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
from wheelfactory.doctor.installed_flash_attn import (
    find_build_cxx11_abi,
    find_build_rocm,
    find_build_torch,
    find_build_torch_rocm,
    format_flash_attn,
    is_compiled,
)
from wheelfactory.doctor.machine import InstalledFlashAttn, Machine
from wheelfactory.wheel.elf.mangled import find_string_abi, format_symbol, guess_provider

TRITON_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_ENABLE"
"""flash-attn up to 2.8.3 uses its Triton backend if this is exactly ``TRUE``, in compiled wheels too."""


def check_torch(machine: Machine) -> Iterator[Diagnosis]:
    """Yield what keeps this torch from running any flash-attn on an AMD GPU."""
    torch = machine.torch
    if torch is None:
        what = "torch is not installed in this Python; flash-attn needs it"
        yield Diagnosis("no torch", what, torch_remedy(machine, machine.flash_attn))
    elif torch.error:
        what = f"{format_torch(machine)} cannot be imported: `{torch.error}`"
        more = shlex.join([machine.python.executable, "-X", "faulthandler", "-c", "import torch"])
        remedy, index = f"for the full error, run: {more}", find_torch_index(torch.version)
        if index:
            again = choose_installer(machine).install_torch(f"torch=={torch.version}", index, again=True)
            remedy = f"{remedy}; or reinstall it: {shlex.join(again)}"
        yield Diagnosis("torch does not import", what, remedy)
    elif torch.hip is None:
        kind = f"a CUDA build (CUDA {torch.cuda})" if torch.cuda else "a CPU build"
        quoted = f": `{machine.flash_attn.error}`" if machine.flash_attn and machine.flash_attn.error else ""
        what = f"{format_torch(machine)} is {kind}; flash-attn on an AMD GPU needs torch built for ROCm{quoted}"
        yield Diagnosis("torch is not built for ROCm", what, torch_remedy(machine, machine.flash_attn))


def torch_remedy(machine: Machine, installed: InstalledFlashAttn | None) -> str:
    """Return the command that installs the torch that flash-attn was built for, or general advice if unknown."""
    known = _build_torch_command(machine, installed) if installed else None
    return known or INSTALL_TORCH


def _build_torch_command(machine: Machine, installed: InstalledFlashAttn) -> str | None:
    """Return the command that installs the torch that flash-attn was built for; None if unknown."""
    torch, rocm = find_build_torch(installed), find_build_torch_rocm(installed)
    if torch is None or rocm is None:
        return None
    requirement, index = f"torch=={format_major_minor(torch[0])}.*", f"{TORCH_INDEX}/rocm{rocm}"
    return shlex.join(choose_installer(machine).install_torch(requirement, index, again=machine.torch is not None))


def diagnose_rocm_mismatch(
    machine: Machine, installed: InstalledFlashAttn, built: tuple[int, int] | None, quoted: str = ""
) -> Diagnosis:
    """Report a flash-attn built for another ROCm than torch; `built` is None if only the error shows that."""
    hip = machine.torch.hip if machine.torch else None
    wanted = f"ROCm {format_major_minor(built)}" if built else "another ROCm"
    what = f"{format_flash_attn(installed)} was built for {wanted}, but {format_torch(machine)} for HIP {hip}"
    return Diagnosis("ROCm mismatch", f"{what}: {quoted}" if quoted else what, INSTALL_MATCHING_WHEEL)


def check_torch_match(machine: Machine, installed: InstalledFlashAttn) -> Iterator[Diagnosis]:
    """Yield mismatches between torch and a flash-attn that imports, as after ``--no-deps`` or a torch upgrade."""
    if machine.torch is None or machine.torch.hip is None or installed.error:
        return
    other = _torch_mismatch(machine, installed)
    built, hip = find_build_rocm(installed), find_major_minor(machine.torch.hip)
    if other:
        yield other
    elif built and hip and built != hip and is_compiled(installed):
        yield diagnose_rocm_mismatch(machine, installed, built)


def _torch_mismatch(machine: Machine, installed: InstalledFlashAttn, quoted: str = "") -> Diagnosis | None:
    """Report a flash-attn built for another torch; None if it matches or its torch is unknown."""
    built = find_build_torch(installed)
    have = find_major_minor(machine.torch.version) if machine.torch else None
    if built is None or have is None or built[0] == have:
        return None
    wanted, source = built
    built_for = f"was built for torch {format_major_minor(wanted)} (from its {source})"
    what = f"{format_flash_attn(installed)} {built_for}, you have {format_torch(machine)}{quoted}"
    command = _build_torch_command(machine, installed)
    instead = f"; or keep it and install the torch it was built for: {command}" if command else ""
    return Diagnosis("torch mismatch", what, INSTALL_MATCHING_WHEEL + instead)


def diagnose_undefined_symbol(machine: Machine, installed: InstalledFlashAttn, symbol: str) -> Diagnosis | None:
    """Return why the loader does not find `symbol`; None if unknown."""
    quoted = f"`undefined symbol: {format_symbol(symbol)}`"
    # a recorded torch version names the mismatch; the symbol alone shows only which library does not match
    return (
        _torch_mismatch(machine, installed, f": {quoted}")
        or _abi_mismatch(machine, installed, symbol, quoted)
        or _library_mismatch(machine, installed, symbol, quoted)
    )


def _abi_mismatch(machine: Machine, installed: InstalledFlashAttn, symbol: str, quoted: str) -> Diagnosis | None:
    # std::string in a symbol shows the ABI of the build; torch for ROCm uses the new ABI from 2.6 on
    has = machine.torch.cxx11_abi if machine.torch else None
    abi = find_string_abi(symbol)
    wants = find_build_cxx11_abi(installed) if abi is None else abi == "new"
    if has is None or wants is None or has == wants:
        return None
    built_with = f"the {abi_age(new=wants)} C++ ABI (_GLIBCXX_USE_CXX11_ABI={int(wants)})"
    what = (
        f"{format_flash_attn(installed)} was built with {built_with}, "
        f"but {format_torch(machine)} uses the {abi_age(new=has)} one ({int(has)}): {quoted}"
    )
    return Diagnosis("C++ ABI mismatch", what, INSTALL_MATCHING_WHEEL)


def _library_mismatch(machine: Machine, installed: InstalledFlashAttn, symbol: str, quoted: str) -> Diagnosis | None:
    found = {
        "torch": ("torch mismatch", f"for another torch than {format_torch(machine)}"),
        "HIP": ("ROCm mismatch", f"for another ROCm than {format_torch(machine)}"),
        "Python": ("Python mismatch", f"for another Python than {machine.python.version}"),
    }.get(guess_provider(symbol))
    return (
        Diagnosis(found[0], f"{format_flash_attn(installed)} was built {found[1]}: {quoted}", INSTALL_MATCHING_WHEEL)
        if found
        else None
    )


def uses_triton(machine: Machine, installed: InstalledFlashAttn) -> bool:
    """Whether flash-attn uses Triton: a Triton wheel, or a compiled wheel with `TRITON_VARIABLE` set."""
    return not is_compiled(installed) or (
        installed.has_triton_backend and machine.environ.get(TRITON_VARIABLE) == "TRUE"
    )


def find_tritons(machine: Machine, facts: DoctorFacts) -> list[tuple[str, str]]:
    """Return (name, version) of the installed Triton distributions, those for ROCm first."""
    return [
        (name, machine.packages[name]) for name in (*facts.rocm_triton_packages, "triton") if name in machine.packages
    ]


def diagnose_missing_triton(machine: Machine, installed: InstalledFlashAttn) -> Diagnosis:
    """Report that flash-attn fails because the module triton is missing."""
    torch = machine.torch
    index = find_torch_index(torch.version) if torch else None
    what = f"{format_flash_attn(installed)} needs Triton, which is not installed: `No module named 'triton'`"
    if torch is None or index is None:
        remedy = f"install the Triton that {format_torch(machine)} requires, from the source of that torch"
        return Diagnosis("no Triton", what, remedy)
    # keeps torch and adds its missing dependencies
    again = choose_installer(machine).install_torch(f"torch=={torch.version}", index)
    return Diagnosis("no Triton", what, shlex.join(again))


def diagnose_triton_version(
    machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts, error: str
) -> Diagnosis:
    """Report a Triton that cannot compile the kernels of this flash-attn; `error` is Triton's message, if any."""
    tritons = " and ".join(f"{name} {version}" for name, version in find_tritons(machine, facts))
    found = tritons or "a Triton without metadata"
    window = facts.find_triton_window(installed.version)
    if window is None:
        what = f"{format_flash_attn(installed)} does not work with {found}: `{error}`"
        return Diagnosis("unsupported Triton", what, INSTALL_MATCHING_WHEEL)
    first, end = window
    needs = f"Triton >={format_major_minor(first)},<{format_major_minor(end)}"
    what = f"{format_flash_attn(installed)} needs {needs}, you have {found}"
    what = f"{what}: `{error}`" if error else what
    return Diagnosis("unsupported Triton", what, _replace_triton(machine, facts, window))


def _replace_triton(machine: Machine, facts: DoctorFacts, window: tuple[tuple[int, int], tuple[int, int]]) -> str:
    """Return how to get a Triton within `window`."""
    for name, version in find_tritons(machine, facts):
        # torch pins its own Triton, so only another torch changes it. AMD's own builds call it triton 3.5.1+rocm7.1.1.
        if name in facts.rocm_triton_packages or "+" in version:
            return f"{format_torch(machine)} requires {name} {version}: {INSTALL_MATCHING_WHEEL}"
    first, end = map(format_major_minor, window)
    return shlex.join(choose_installer(machine).install_without_dependencies(f"triton>={first},<{end}"))


def check_triton(machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Yield problems with Triton, including those that do not prevent the import."""
    tritons = find_tritons(machine, facts)
    if len(tritons) > 1:
        yield _overwritten(machine, facts, tritons)
    window = facts.find_triton_window(installed.version)
    versions = [find_major_minor(version) for _, version in tritons]
    is_checkable = len(tritons) == 1 and uses_triton(machine, installed) and not installed.error
    if is_checkable and window and versions[0] and not window[0] <= versions[0] < window[1]:
        yield diagnose_triton_version(machine, installed, facts, "")
    if is_compiled(installed) and uses_triton(machine, installed):
        what = f"{TRITON_VARIABLE}=TRUE makes {format_flash_attn(installed)} use Triton instead of its compiled kernels"
        yield Diagnosis("Triton overrides compiled kernels", what, f"unset {TRITON_VARIABLE} unless this is intended")


def _overwritten(machine: Machine, facts: DoctorFacts, tritons: list[tuple[str, str]]) -> Diagnosis:
    both = " and ".join(f"{name} {version}" for name, version in tritons)
    torch = find_major_minor(machine.torch.version) if machine.torch else None
    own = facts.find_torch(torch or (0, 0)).triton_package
    name, version = next((found for found in tritons if found[0] == own), tritons[0])
    what = f"{both} are both installed into the directory triton, so one has overwritten the other"
    others = uninstall_command(machine, *(other for other, _ in tritons if other != name))
    index = find_torch_index(machine.torch.version) if machine.torch else None
    installer = choose_installer(machine)
    if index is None:  # PyPI may lack this version, and the uninstall removes the shared directory
        source = f"the source of {format_torch(machine)}, with {installer.reinstall_option} --no-deps"
        return Diagnosis("two Tritons installed", what, f"{others}; then install {name}=={version} from {source}")
    options = (installer.reinstall_option, "--no-deps", installer.index_option, index)
    again = shlex.join([*installer.install_command, *options, f"{name}=={version}"])
    return Diagnosis("two Tritons installed", what, f"{others} && {again}")
