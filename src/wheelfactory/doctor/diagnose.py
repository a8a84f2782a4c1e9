"""A machine -> what is wrong with it and with the flash-attn that it has, the weightiest first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from wheelfactory.doctor.diagnosis import (
    INSTALL_MATCHING_WHEEL,
    Diagnosis,
    choose_installer,
    find_major_minor,
    format_torch,
    uninstall_command,
)
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.gpu_access import check_gpu_access, check_gpu_code
from wheelfactory.doctor.machine import InstalledFlashAttn, Machine
from wheelfactory.doctor.origin import find_build_rocm, format_flash_attn, has_cuda_label, has_label, is_compiled
from wheelfactory.doctor.torch_checks import (
    TRITON_VARIABLE,
    check_torch,
    check_torch_match,
    check_triton,
    diagnose_missing_triton,
    diagnose_rocm_mismatch,
    diagnose_triton_version,
    diagnose_undefined_symbol,
    torch_remedy,
)

_REQUIRED_ELSEWHERE = re.compile(r"torch$|triton")
"""What other diagnoses are about."""

_IMPORT_LINE = "from flash_attn.flash_attn_interface import flash_attn_func"
_NO_KERNELS = "`No module named 'flash_attn_2_cuda'`"
_NOT_FOUND = "cannot open shared object file"
_HIP_LIBRARY = re.compile(r"lib(?:amdhip64|hiprtc|torch_hip|c10_hip|hsa-runtime64|roc\w+|hip\w+)\.so")
_CUDA_LIBRARY = re.compile(r"lib(?:cudart|torch_cuda|c10_cuda|cuda|cublas|cudnn|nvrtc)\w*\.so")
_TOO_OLD = re.compile(r"(\S+): version [`'](GLIBC|GLIBCXX|CXXABI)_([\d.]+)' not found")
_DAMAGED = re.compile(r"file too short|invalid ELF header|killed by SIGBUS|No module named 'flash_attn(?:\.\w+)*'")
"""A file that was cut ends before its header, or where the loader reads it: the latter is what SIGBUS says."""
_REFUSED_BY_TRITON = re.compile(r"ValueError: '\w+' is not in list|key contains names that are not kernel arguments")
"""The words of Triton 3.1 and 3.9 for the kernels of flash-attn 2.8.3 (measured)."""
_NO_CODE = re.compile(r"hipErrorNoBinaryForGpu|invalid device function|no kernel image is available")
"""What HIP says where there is no code object for the GPU."""


def diagnose_machine(machine: Machine, facts: DoctorFacts) -> tuple[Diagnosis, ...]:
    """All that is wrong; empty for a machine on which flash-attn works, or has nothing against it."""
    return tuple(dict.fromkeys(_diagnoses(machine, facts)))  # what an error told may be seen in the files too


def _diagnoses(machine: Machine, facts: DoctorFacts) -> Iterator[Diagnosis]:
    installed = machine.flash_attn
    torch = list(check_torch(machine))
    yield from torch
    if installed:
        explained = None if torch else explain_error(machine, installed, facts)
        if explained:
            yield explained
        if has_cuda_label(installed) and (explained is None or explained.name != "built for CUDA"):
            yield cuda_build(installed)
        yield from check_torch_match(machine, installed)
        yield from check_gpu_code(machine, installed)
    yield from check_gpu_access(machine)
    if installed:
        yield from _about_packages(machine, installed)
        yield from check_triton(machine, installed, facts)


def _about_packages(machine: Machine, installed: InstalledFlashAttn) -> Iterator[Diagnosis]:
    for path in leftovers(installed):
        yield leftover(installed, path)
    here = installed.other_installs if installed.error else beside(installed)
    if here:
        what = f"beside {format_flash_attn(installed)} in {installed.location} there is {' and '.join(here)}"
        again = f"{uninstall_command(machine, 'flash-attn')} (once for each), then install one of them again"
        yield Diagnosis("two flash-attn", what, again)
    if installed.shadowing_dir:
        folder = shlex.quote(installed.shadowing_dir)
        what = f"{folder} has a folder flash_attn: Python started there takes that, not {format_flash_attn(installed)}"
        yield Diagnosis("another folder flash_attn", what, "cd to another folder")
    for name in installed.missing_requirements:
        if not _REQUIRED_ELSEWHERE.search(name):
            yield missing_requirement(machine, installed, name)


def explain_error(machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts) -> Diagnosis | None:
    """Why flash-attn does not import; None if it does, or if torch is what does not."""
    if not installed.error or machine.torch is None or machine.torch.error:
        return None
    found = next(filter(None, _explanations(machine, installed, facts)), None)
    if found:
        return found
    more = shlex.join([machine.python.executable, "-X", "faulthandler", "-c", _IMPORT_LINE])
    if ".so" in installed.error:
        more = f"LD_DEBUG=libs {more}"
    what = f"importing {format_flash_attn(installed)} failed for a reason that is not known here: `{installed.error}`"
    return Diagnosis("unknown import error", what, f"see more with: {more}")


def _explanations(machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts) -> Iterator[Diagnosis | None]:
    """The first that is one counts."""
    error = installed.error
    yield from (leftover(installed, path) for path in leftovers(installed) if path in error)
    if match := re.search(r"undefined symbol: ([^\s,]+)", error):
        yield diagnose_undefined_symbol(machine, installed, match[1])
    if match := re.search(rf"(lib[^\s:/]+): {_NOT_FOUND}", error):
        yield _missing_library(machine, installed, match[1])
    if match := _TOO_OLD.search(error):
        yield _too_old(machine, installed, *match.groups())
    if match := re.search(r"No module named '(\w+)", error):
        yield _missing_module(machine, installed, match[1])
    if match := _DAMAGED.search(error):
        what = f"files of {format_flash_attn(installed)} are damaged or gone: `{match[0]}`"
        yield Diagnosis(
            "damaged files", what, f"{uninstall_command(machine, 'flash-attn')}; then {INSTALL_MATCHING_WHEEL}"
        )
    if _REFUSED_BY_TRITON.search(error):
        yield diagnose_triton_version(machine, installed, facts, error)
    if error.startswith(
        f"ImportError: {TRITON_VARIABLE}="
    ):  # our Triton wheels, where it asks for the compiled kernels
        what = error.partition(": ")[2]
        yield Diagnosis(
            "the other backend is asked for", what, f"unset {TRITON_VARIABLE}; or, for ck, {INSTALL_MATCHING_WHEEL}"
        )
    if _NO_CODE.search(error):
        yield from check_gpu_code(machine, installed)
        yield Diagnosis(
            "no code for this GPU",
            f"{format_flash_attn(installed)} has no code for this GPU: `{error}`",
            INSTALL_MATCHING_WHEEL,
        )


def leftovers(installed: InstalledFlashAttn) -> list[str]:
    """The compiled modules beside a flash-attn that has none: Python takes them before anything of the same name.

    None where two flash-attn are in that folder: they are the other's then.
    """
    if is_compiled(installed) or beside(installed):
        return []
    return [path for path in installed.stray_modules if str(Path(path).parent) == installed.location]


def beside(installed: InstalledFlashAttn) -> list[str]:
    """The further flash-attn in the folder of the one that Python takes."""
    return [other for other in installed.other_installs if other.endswith(f" in {installed.location}")]


def leftover(installed: InstalledFlashAttn, stray: str) -> Diagnosis:
    """For a compiled module that an earlier flash-attn left beside one that has none."""
    what = f"{stray} is not of {format_flash_attn(installed)}; an earlier flash-attn left it, and Python takes it first"
    if stray in installed.error:
        what = f"{what}: `{installed.error}`"
    return Diagnosis("leftover of an earlier install", what, f"rm {shlex.quote(stray)}")


def cuda_build(installed: InstalledFlashAttn, said: str = "") -> Diagnosis:
    """For a flash-attn that is for CUDA; what pip builds from PyPI's sources beside a CUDA compiler is."""
    why = "" if has_label(installed) else ", and has no label: it was made from the sources on PyPI, or by others"
    return Diagnosis(
        "built for CUDA", f"{format_flash_attn(installed)} is built for CUDA{why}{said}", INSTALL_MATCHING_WHEEL
    )


def _missing_library(machine: Machine, installed: InstalledFlashAttn, library: str) -> Diagnosis | None:
    """A library of CUDA; or one of ROCm, which torch brings, or of torch for ROCm."""
    torch, said = machine.torch, f"`{library}: {_NOT_FOUND}`"
    if _CUDA_LIBRARY.match(library):
        return cuda_build(installed, f": {said}")
    if not _HIP_LIBRARY.match(library):
        return None
    if torch is None or torch.hip is None:
        what = f"{format_flash_attn(installed)} needs a torch that is built for ROCm, {format_torch(machine)} is not: {said}"
        return Diagnosis("torch is not for ROCm", what, torch_remedy(machine, installed))
    built = find_build_rocm(installed)
    if (built and find_major_minor(torch.hip) != built) or _is_of_other_major(library, torch.hip):
        return diagnose_rocm_mismatch(machine, installed, built, said)
    what = f"{format_flash_attn(installed)} does not find a library of ROCm, nor does {format_torch(machine)} bring it: {said}"
    found = f"find {shlex.quote(machine.rocm_path or '/opt')} -name {shlex.quote(library + '*')}"
    return Diagnosis("no library of ROCm", what, f"{found}, and add the folder to LD_LIBRARY_PATH")


def _is_of_other_major(library: str, hip: str) -> bool:
    """``libamdhip64.so.6`` is that of ROCm 6, and ``.so.7`` that of 7.0 to 10.0 (ROCm's releases)."""
    number = re.fullmatch(r"libamdhip64\.so\.(\d+)", library)
    have = find_major_minor(hip)
    return number is not None and have is not None and int(number[1]) != min(have[0], 7)


def _too_old(machine: Machine, installed: InstalledFlashAttn, library: str, kind: str, version: str) -> Diagnosis:
    """glibc or libstdc++ of the machine is older than that of the build."""
    name, said = format_flash_attn(installed), f"`version {kind}_{version} not found` in {library}"
    if kind == "GLIBC":
        have = machine.python.glibc or "an older one"
        what = f"{name} needs glibc {version} or newer, this machine has {have}: {said}"
        return Diagnosis(
            "glibc too old", what, f"{INSTALL_MATCHING_WHEEL}; or use a newer distribution, or a container of one"
        )
    cure = "use a newer distribution, or a container of one"
    if "conda" in library:
        cure = "conda install --channel conda-forge libstdcxx-ng"
    return Diagnosis("libstdc++ too old", f"{name} needs a newer libstdc++ than the one it was given: {said}", cure)


def _missing_module(machine: Machine, installed: InstalledFlashAttn, name: str) -> Diagnosis | None:
    if name == "flash_attn_2_cuda":
        return _no_kernels(machine, installed)
    if name == "triton":
        return diagnose_missing_triton(machine, installed)
    if name == "aiter":
        what = (
            f"the Triton backend of {format_flash_attn(installed)} is another package, aiter: `No module named 'aiter'`"
        )
        return Diagnosis(
            "no aiter", what, f"{INSTALL_MATCHING_WHEEL}; the Triton wheels of 2.8.3 and older need no aiter"
        )
    return missing_requirement(machine, installed, name) if name in installed.missing_requirements else None


def missing_requirement(machine: Machine, installed: InstalledFlashAttn, name: str) -> Diagnosis:
    """For a package that flash-attn requires and nobody installed, as ``--no-deps`` does not."""
    what = f"{format_flash_attn(installed)} requires {name}, which this Python does not have"
    return Diagnosis(
        "missing requirement", what, shlex.join(choose_installer(machine).install_without_dependencies(name))
    )


def _no_kernels(machine: Machine, installed: InstalledFlashAttn) -> Diagnosis:
    """A compiled module for another Python, or a wheel without one."""
    if installed.extension:
        python, module = machine.python, Path(installed.extension).name
        what = f"Python {python.version} ({python.tag}, {python.machine}) does not take {module} of {format_flash_attn(installed)}"
        return Diagnosis("another Python", f"{what}: {_NO_KERNELS}", INSTALL_MATCHING_WHEEL)
    if not installed.has_triton_backend:
        what = f"{format_flash_attn(installed)} holds neither compiled kernels nor the Triton backend: {_NO_KERNELS}"
        return Diagnosis("no kernels", what, INSTALL_MATCHING_WHEEL)
    value = machine.environ.get(TRITON_VARIABLE)
    seen = (
        f"{TRITON_VARIABLE} is not set" if value is None else f"{TRITON_VARIABLE} is {value!r} and not exactly 'TRUE'"
    )
    what = f"{format_flash_attn(installed)} has no compiled kernels, only the Triton backend, and {seen}: {_NO_KERNELS}"
    return Diagnosis("Triton is not enabled", what, f"export {TRITON_VARIABLE}=TRUE")
