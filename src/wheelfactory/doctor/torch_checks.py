"""Check the torch of a Python, alone and against the installed flash-attn."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from wheelfactory.core.label import TorchOrigin, find_own_index
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.gpu_match import format_gpu, lacks_code
from wheelfactory.doctor.installed_flash_attn import (
    find_build_cxx11_abi,
    find_build_rocm,
    find_build_torch,
    is_compiled,
)
from wheelfactory.doctor.machine import (
    INSTALL_TORCH,
    Diagnosis,
    InstalledFlashAttn,
    InstalledTorch,
    Machine,
    abi_age,
    choose_installer,
    debug_command,
    find_major_minor,
    format_major_minor,
)
from wheelfactory.wheel.elf.mangled import find_string_abi, format_symbol, guess_provider

# import errors that the same torch again does not mend, and what does; {again}: how to get it again
_OTHER_REMEDIES: Mapping[str, str] = {
    "iJIT_NotifyEvent": "its MKL is too new: `conda install 'mkl<2024.1'`; or {again}",  # pytorch/pytorch#123097
    "cannot enable executable stack": "clear its mark: `patchelf --clear-execstack FILE`, or install a newer torch",
    r"version [`'](?:GLIBCXX|CXXABI)_": "`conda install --channel conda-forge libstdcxx-ng`, or use a newer Linux",
    r"version [`']GLIBC_": "use a newer Linux distribution, or a container such as rocm/pytorch",
    r"lib(?:openblas|gomp|gfortran|numa|elf|drm\w*|mpi\w*|stdc\+\+|gcc_s|atomic|z)\.so\S*: cannot open": "install the "
    "package of your Linux distribution that has this library (`apt-file search NAME`)",
    "no answer within": "run the doctor again: a first import is slow; if it hangs, `sudo dmesg | grep amdgpu`",
}
_ROCM_LIBRARY = re.compile(
    r"lib(?:amdhip64|hiprtc|hsa-runtime64|roc\w+|hip\w+|MIOpen|rccl|amd_comgr)\.so\S*: cannot open"
)

# a label that is a commit, as vLLM's images have: built from source for the torch beside it, whatever its number
_OWN_BUILD = re.compile(r"\+(?!rocm|cu|cpu)")


def check_torch(machine: Machine, facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Yield what keeps this torch from running any flash-attn on an AMD GPU."""
    torch, remedy = machine.torch, INSTALL_TORCH
    if machine.container == "wsl":
        remedy = "install AMD's torch for WSL (its page \"Install PyTorch for ROCm\" of Radeon), not PyTorch's"
    if torch is None:
        yield Diagnosis("no torch", "torch is not installed in this Python; flash-attn needs it", remedy)
    elif torch.error and not torch.is_for_cuda:
        yield _not_imported(machine, torch, facts)
    elif torch.hip is None:
        kind = f"a {'CUDA' if torch.is_for_cuda else 'CPU'} build{f' (CUDA {torch.cuda})' if torch.cuda else ''}"
        error = torch.error or (machine.flash_attn.error if machine.flash_attn else "")
        what = f"{torch} is {kind}; flash-attn on an AMD GPU needs torch built for ROCm{f': `{error}`' * bool(error)}"
        yield Diagnosis("torch is not built for ROCm", what, remedy)
    elif torch.gpu_error:
        what = f"{machine.torch} imports, but its first call of the GPU ended: {torch.gpu_error}"
        remedy = _reinstall_torch(machine, torch, facts, "import torch", "torch.cuda.init()")
        yield Diagnosis("torch crashes", what, remedy)
    else:
        yield from _unmet(machine, torch, facts)
        if archs := lacks_code(machine):
            what = f"{machine.torch} has no code for {', '.join(map(format_gpu, archs))}"
            yield Diagnosis("no code in torch", what, _add_device(machine, torch, facts, archs) or remedy)


def _add_device(machine: Machine, torch: InstalledTorch, facts: DoctorFacts, archs: Sequence[str]) -> str | None:
    """Return the command that adds the code for GPUs to AMD's torch, which has it in a package for each."""
    index, amd = find_own_index(torch.version, facts.indexes), (TorchOrigin.AMD, TorchOrigin.AMD_NIGHTLY)
    if index is None or torch.origin not in amd or archs[0].startswith("gfx8"):
        return None
    wanted = f"torch[{','.join(f'device-{arch}' for arch in archs)}]=={torch.version}"
    return shlex.join(choose_installer(machine).install_torch(wanted, index=index))


def _not_imported(machine: Machine, torch: InstalledTorch, facts: DoctorFacts) -> Diagnosis:
    what = f"{machine.torch} cannot be imported: `{torch.error}`"
    again = _reinstall_torch(machine, torch, facts, "import torch")
    if torch.origin is TorchOrigin.AMD and _ROCM_LIBRARY.search(torch.error):
        again = "install its ROCm: on the machine, or of AMD's index with pip (`rocm[libraries]`) if it came from there"
    if older := find_older_rocm(machine, torch.error, facts):
        return older
    if (match := re.search(r"No module named '(\w+)'", torch.error)) and match[1] != "torch":
        again = shlex.join(choose_installer(machine).install_without_dependencies(match[1]))
    known = (text for pattern, text in _OTHER_REMEDIES.items() if re.search(pattern, torch.error))
    remedy = next(known, "{again}").format(again=again)
    if first := next(iter(torch.unmet), None):
        what = f"{what}; it requires {first}"
    return Diagnosis("torch does not import", what, remedy)


def find_older_rocm(machine: Machine, error: str, facts: DoctorFacts) -> Diagnosis | None:
    """Report that LD_LIBRARY_PATH puts the libraries of another ROCm before torch's."""
    folders, have = machine.environ.get("LD_LIBRARY_PATH", ""), facts.find_rocm(machine.torch)
    named = re.search(r"/rocm(?:-(\d+\.\d+)|/|$)", folders)
    found = find_major_minor((named[1] or machine.rocm or "") if named else "")
    if found is None or have in (None, found) or "undefined symbol" not in error:
        return None
    what = f"LD_LIBRARY_PATH={folders} loads the libraries of ROCm {format_major_minor(found)} before those of"
    return Diagnosis("libraries of another ROCm", f"{what} {machine.torch}: `{error}`", "unset LD_LIBRARY_PATH")


def _reinstall_torch(machine: Machine, torch: InstalledTorch, facts: DoctorFacts, *code: str) -> str:
    """Return how to get the same torch again, from its own index, or how to see the full error of `code`."""
    index, installer = find_own_index(torch.version, facts.indexes), choose_installer(machine)
    if torch.origin is TorchOrigin.AMD_NIGHTLY:
        return f"install torch and its ROCm packages (rocm-sdk-core, rocm-sdk-libraries) of the same day, from {index}"
    if torch.origin is TorchOrigin.NIGHTLY and index:
        another = installer.install_torch("--pre", installer.reinstall_option, "torch", index=index)
        return f"it is a nightly; install another day's: `{shlex.join(another)}`"
    if index:
        again = installer.install_torch(installer.reinstall_option, f"torch=={torch.version}", index=index)
        return f"reinstall it: `{shlex.join(again)}`"
    return f"reinstall it from where it came; for the full error: `{debug_command(machine, *code)}`"


def _unmet(machine: Machine, torch: InstalledTorch, facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Yield the requirements of torch that this Python does not meet; its Triton counts even if flash-attn imports."""
    for need in torch.unmet:
        remedy = from_own_index(machine, facts, f"{need.name}{need.specifier}")
        yield Diagnosis("unmet requirement", f"{machine.torch} requires {need}", remedy)


def from_own_index(machine: Machine, facts: DoctorFacts, requirement: str) -> str:
    """Return how to install a package that belongs to the installed torch; torch and flash-attn stay."""
    installer = choose_installer(machine)
    index = find_own_index(machine.torch.version, facts.indexes) if machine.torch else None
    if index:
        options = ("--no-deps", installer.reinstall_option)
        return shlex.join(installer.install_from_index(index, requirement, options=options))
    where = f"add its index to `{shlex.join(installer.install_without_dependencies(requirement, again=True))}`"
    return f"keep torch, and install {requirement} from where this torch came: {where}"


def check_companions(machine: Machine, facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Yield a torchvision or torchaudio that belongs to another torch: they fail when they are imported."""
    torch = machine.torch
    have = torch.minor if torch and torch.hip else None
    if torch is None or have is None or have[0] != 2:
        return
    wrong = []
    for name, wanted in (("torchvision", (0, have[1] + 15)), ("torchaudio", (2, have[1]))):
        version = machine.packages.get(name, "")
        found = None if _OWN_BUILD.search(version) else find_major_minor(version)
        # PyPI's torchvision is for CUDA too; torchaudio 2.11 is the last one, and works with later torches
        is_pypis = name == "torchvision" and "+" not in version and torch.origin is TorchOrigin.PYTORCH
        is_last = name == "torchaudio" and (2, 11) <= (found or wanted) < wanted
        if found and ("+cu" in version or is_pypis or (found != wanted and not is_last)):
            wrong.append(name)
    both = " and ".join(f"{name} {machine.packages[name]}" for name in wrong)
    what = f"{both} belong{'s' * (len(wrong) == 1)} to another torch than {machine.torch}"
    index, installer = find_own_index(torch.version, facts.indexes), choose_installer(machine)
    remedy = f"install {' and '.join(wrong)} from where this torch came"
    if index:
        remedy = shlex.join(installer.install_torch("--upgrade", f"torch=={torch.version}", *wrong, index=index))
    if wrong:
        yield Diagnosis("torchvision of another torch", what, remedy)


def diagnose_rocm_mismatch(
    machine: Machine, installed: InstalledFlashAttn, built: tuple[int, int] | None, have: str, quoted: str = ""
) -> Diagnosis:
    """Report a flash-attn built for another ROCm than `have` of torch; `built`: None if only the error shows that."""
    wanted = f"ROCm {format_major_minor(built)}" if built else "another ROCm"
    what = f"{installed} was built for {wanted}, but {machine.torch} for ROCm {have}{quoted}"
    return Diagnosis("ROCm mismatch", what)


def check_torch_match(machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts) -> Iterator[Diagnosis]:
    """Yield mismatches between torch and compiled kernels that import, as after ``--no-deps`` or a torch upgrade."""
    torch = machine.torch
    if torch is None or torch.hip is None or installed.error or not is_compiled(installed):
        return
    built, have = find_build_rocm(installed, facts), facts.find_rocm(torch)
    if other := _torch_mismatch(machine, installed):
        yield other
    elif built and have and built != have:
        yield diagnose_rocm_mismatch(machine, installed, built, format_major_minor(have))


def _torch_mismatch(machine: Machine, installed: InstalledFlashAttn, quoted: str = "") -> Diagnosis | None:
    """Report a flash-attn built for another torch; None if it matches or its torch is unknown."""
    built, have = find_build_torch(installed), machine.torch_minor
    if built is None or have is None or built[0] == have:
        return None
    built_for = f"was built for torch {format_major_minor(built[0])} (from its {built[1]})"
    return Diagnosis("torch mismatch", f"{installed} {built_for}, you have {machine.torch}{quoted}")


def diagnose_undefined_symbol(machine: Machine, installed: InstalledFlashAttn, symbol: str) -> Diagnosis | None:
    """Return why the loader does not find `symbol`; None if unknown."""
    quoted = f": `undefined symbol: {format_symbol(symbol)}`"
    # a recorded torch version names the mismatch; the symbol alone shows only which library does not match
    return (
        _torch_mismatch(machine, installed, quoted)
        or _abi_mismatch(machine, installed, symbol, quoted)
        or _library_mismatch(machine, installed, symbol, quoted)
    )


def _abi_mismatch(machine: Machine, installed: InstalledFlashAttn, symbol: str, quoted: str) -> Diagnosis | None:
    # std::string in a symbol shows the ABI of the build; torch for ROCm uses the new ABI from 2.6 on
    has, abi = machine.torch.cxx11_abi if machine.torch else None, find_string_abi(symbol)
    wants = find_build_cxx11_abi(installed) if abi is None else abi == "new"
    if has is None or wants is None or has == wants:
        return None
    built_with = f"the {abi_age(new=wants)} C++ ABI (_GLIBCXX_USE_CXX11_ABI={int(wants)})"
    uses = f"but {machine.torch} uses the {abi_age(new=has)} one ({int(has)})"
    return Diagnosis("C++ ABI mismatch", f"{installed} was built with {built_with}, {uses}{quoted}")


def _library_mismatch(machine: Machine, installed: InstalledFlashAttn, symbol: str, quoted: str) -> Diagnosis | None:
    mismatches = {"torch": ("torch", machine.torch), "HIP": ("ROCm", machine.torch)}
    name, have = {**mismatches, "Python": ("Python", machine.python.version)}.get(guess_provider(symbol), ("", ""))
    what = f"{installed} was built for another {name} than {have}{quoted}"
    return Diagnosis(f"{name} mismatch", what) if name else None
