"""Diagnose a machine and its installed flash-attn, most severe problem first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from wheelfactory.core.cell import FALLBACK_NAME
from wheelfactory.doctor.aiter_checks import check_aiter, explain_aiter_error, explain_other_aiter
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.gpu_access import check_gpu_access, check_gpu_code, check_override
from wheelfactory.doctor.gpu_match import uses_nvidia
from wheelfactory.doctor.installed_flash_attn import (
    find_build_rocm,
    has_cuda_label,
    has_label,
    is_compiled,
    is_fallback,
)
from wheelfactory.doctor.machine import (
    INSTALL_MATCHING_WHEEL,
    Diagnosis,
    InstalledFlashAttn,
    Machine,
    choose_installer,
    debug_command,
    format_major_minor,
    uninstall_command,
)
from wheelfactory.doctor.torch_checks import (
    check_companions,
    check_torch,
    check_torch_match,
    diagnose_rocm_mismatch,
    diagnose_undefined_symbol,
    find_older_rocm,
)
from wheelfactory.doctor.triton_checks import (
    TRITON_VARIABLE,
    check_triton,
    diagnose_missing_triton,
    diagnose_triton_version,
)

# requirements that `torch_checks`, `triton_checks` and `aiter_checks` diagnose
_REQUIRED_ELSEWHERE = re.compile(r"torch$|triton|amd-aiter$")

_IMPORT_LINE = "from flash_attn.flash_attn_interface import flash_attn_func"
_NO_KERNELS = "`No module named 'flash_attn_2_cuda'`"
_NOT_FOUND = "cannot open shared object file"
_HIP_LIBRARY = re.compile(r"lib(?:amdhip64|hiprtc|torch_hip|c10_hip|hsa-runtime64|roc\w+|hip\w+)\.so")
_CUDA_LIBRARY = re.compile(r"lib(?:cudart|torch_cuda|c10_cuda|cuda|cublas|cudnn|nvrtc)\w*\.so")
_MISSING_VERSION = re.compile(r"(\S+): version [`'](GLIBC|GLIBCXX|CXXABI)_([\d.]+)' not found")
# a truncated file lacks its header, or ends before a page that the loader maps: then SIGBUS kills the process
_DAMAGED = re.compile(r"file too short|invalid ELF header|killed by SIGBUS|No module named 'flash_attn(?:\.\w+)*'")
# the errors of Triton 3.1 and 3.9 for the kernels of flash-attn 2.8.3 (measured), of a Triton that is not torch's, and
# of one that finds no driver although torch sees a GPU
_REFUSED_BY_TRITON = re.compile(
    r"ValueError: '\w+' is not in list|key contains names that are not kernel arguments|0 active drivers"
    r"|cannot import name '\w+' from 'triton\b|module 'triton[\w.]*' has no attribute|No module named 'triton\."
)
# the errors of Triton and HIP without a GPU
_NO_DEVICE = re.compile(r"0 active drivers|No HIP GPUs|no ROCm-capable device|hipErrorNoDevice")
# HIP's errors if there is no code object for the GPU
_NO_CODE = re.compile(r"hipErrorNoBinaryForGpu|invalid device function|no kernel image is available")


def diagnose_machine(machine: Machine, facts: DoctorFacts) -> tuple[Diagnosis, ...]:
    """Return all problems, most severe first; empty if there are none."""
    return tuple(dict.fromkeys(_diagnoses(machine, facts)))  # the error and the files can show the same problem


def _diagnoses(machine: Machine, facts: DoctorFacts) -> Iterator[Diagnosis]:
    installed = machine.flash_attn
    is_on_cpu = is_fallback(installed) and not machine.gpus and not (machine.torch and machine.torch.hip)
    if uses_nvidia(machine, facts) or (is_on_cpu and installed and not installed.error):
        return
    torch = list(check_torch(machine, facts))
    yield from check_override(machine)
    yield from torch
    if installed:
        lacks_gpu = machine.torch and machine.torch.sees_gpu is False and _NO_DEVICE.search(installed.error)
        is_explained = not installed.error or lacks_gpu or any(one.name != "unmet requirement" for one in torch)
        explained = None if is_explained else explain_error(machine, installed, facts)
        if explained and not (installed.other_installs and explained.name == "unknown import error"):
            yield explained
        if has_cuda_label(installed) and (explained is None or explained.name != "built for CUDA"):
            yield cuda_build(installed)
        yield from check_torch_match(machine, installed, facts)
        yield from check_gpu_code(machine, installed)
    elif machine.foreign_flash_attn:
        yield foreign_module(machine)
    yield from check_gpu_access(machine)
    yield from check_companions(machine, facts)
    if installed:
        yield from _about_packages(machine, installed)
    yield from check_triton(machine, installed, facts)


def foreign_module(machine: Machine) -> Diagnosis:
    """Report a module flash_attn that belongs to no flash-attn, and would be imported instead of one."""
    folder = shlex.quote(f"{machine.foreign_flash_attn}/flash_attn")
    if machine.foreign_owner:
        what = f"{machine.foreign_owner} brings a module flash_attn, which is not flash-attn: {folder}"
        remedy = uninstall_command(machine, machine.foreign_owner.partition(" ")[0])
        return Diagnosis("fake flash-attn", what, remedy)
    what = f"{folder} is a folder of no distribution, such as a clone, and Python would import it as flash_attn"
    return Diagnosis("folder shadows flash-attn", what, f"rename or remove {folder}, or take it off PYTHONPATH")


def _about_packages(machine: Machine, installed: InstalledFlashAttn) -> Iterator[Diagnosis]:
    for path in leftovers(installed):
        yield leftover(installed, path)
    here = installed.other_installs if installed.error else beside(installed)
    if here:
        what = f"several installs: {installed} in {installed.location}, and {' and '.join(here)}"
        again = f"{uninstall_command(machine, 'flash-attn')}, then once more for each other, and reinstall one of them"
        yield Diagnosis("two flash-attn installs", what, again)
    if installed.shadowing_dir:
        folder = shlex.quote(installed.shadowing_dir)
        what = f"{folder} contains a directory flash_attn, which Python imports there instead of {installed}"
        yield Diagnosis("directory shadows flash-attn", what, "cd to another directory")
    yield from check_aiter(machine)
    for name in installed.missing_requirements:
        if not _REQUIRED_ELSEWHERE.search(name):
            yield missing_requirement(machine, installed, name)


def explain_error(machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts) -> Diagnosis:
    """Return why flash-attn does not import with a torch that has no problem itself."""
    if found := next(filter(None, _explanations(machine, installed, facts)), None):
        return found
    more = "LD_DEBUG=libs " * (".so" in installed.error) + debug_command(machine, _IMPORT_LINE)
    what = f"importing {installed} failed for an unknown reason: `{installed.error}`"
    return Diagnosis("unknown import error", what, f"for details, run: {more}")


def _explanations(machine: Machine, installed: InstalledFlashAttn, facts: DoctorFacts) -> Iterator[Diagnosis | None]:
    """Yield the possible explanations of an import error, most specific first."""
    error = installed.error
    yield from (leftover(installed, path) for path in leftovers(installed) if path in error)
    yield from explain_aiter_error(machine, installed)
    yield find_older_rocm(machine, error, facts)
    if match := re.search(r"undefined symbol: ([^\s,]+)", error):
        yield diagnose_undefined_symbol(machine, installed, match[1])
    if match := re.search(rf"(lib[^\s:/]+): {_NOT_FOUND}", error):
        yield _missing_library(machine, installed, match[1], facts)
    if match := _MISSING_VERSION.search(error):
        yield _too_old(machine, installed, *match.groups())
    if match := re.search(r"No module named '(\w+)'", error):
        yield _missing_module(machine, installed, match[1], facts)
    if match := _DAMAGED.search(error):
        remedy = f"{uninstall_command(machine, 'flash-attn')}; then {INSTALL_MATCHING_WHEEL}"
        yield Diagnosis("damaged files", f"files of {installed} are damaged or missing: `{match[0]}`", remedy)
    if _REFUSED_BY_TRITON.search(error):
        yield diagnose_triton_version(machine, installed, facts, error)
    if "Unknown Device Type" in error:  # Dao-AILab/flash-attention#1632
        what = f"{installed} knows what to autotune on Instinct only: `{error}`"
        yield Diagnosis("autotuning fails", what, "unset FLASH_ATTENTION_TRITON_AMD_AUTOTUNE")
    # raised by our Triton wheels if it is FALSE
    if error.startswith((f"ImportError: {TRITON_VARIABLE}=", f"RuntimeError: {TRITON_VARIABLE}=")):
        remedy = f"unset {TRITON_VARIABLE}, then it uses Triton (for CK, run the doctor with --backend ck)"
        yield Diagnosis("wrong backend selected", error.partition(": ")[2], remedy)
    if _NO_CODE.search(error):
        yield from check_gpu_code(machine, installed)
        yield Diagnosis("no code for this GPU", f"{installed} has no code for this GPU: `{error}`")
    yield from explain_other_aiter(machine, installed)


def leftovers(installed: InstalledFlashAttn) -> list[str]:
    """Return stray compiled modules in the directory of a flash-attn without compiled kernels."""
    if is_compiled(installed) or beside(installed):  # a second install in the same directory would own them
        return []
    return [path for path in installed.stray_modules if str(Path(path).parent) == installed.location]


def beside(installed: InstalledFlashAttn) -> list[str]:
    """Return the other installs in the directory of the flash-attn that Python imports."""
    return [other for other in installed.other_installs if other.endswith(f" in {installed.location}")]


def leftover(installed: InstalledFlashAttn, stray: str) -> Diagnosis:
    """Report a compiled module that an earlier install left behind."""
    what = f"{stray} does not belong to {installed}; an earlier install left it, and Python imports it"
    quoted = f": `{installed.error}`" if stray in installed.error else ""
    return Diagnosis("leftover module", f"{what}{quoted}", f"rm {shlex.quote(stray)}")


def cuda_build(installed: InstalledFlashAttn, quoted: str = "") -> Diagnosis:
    """Report a flash-attn built for CUDA, as pip builds it from PyPI's sdist if a CUDA compiler is present."""
    why = "" if has_label(installed) else " (it has no label, so it was built from PyPI's sources or elsewhere)"
    return Diagnosis("built for CUDA", f"{installed} is built for CUDA{why}{quoted}")


def _missing_library(
    machine: Machine, installed: InstalledFlashAttn, library: str, facts: DoctorFacts
) -> Diagnosis | None:
    quoted = f": `{library}: {_NOT_FOUND}`"
    if _CUDA_LIBRARY.match(library):
        return cuda_build(installed, quoted)
    if not _HIP_LIBRARY.match(library):
        return None
    built, have = find_build_rocm(installed, facts), facts.find_rocm(machine.torch)
    if have and ((built and have != built) or _is_other_rocm_major(library, have)):
        return diagnose_rocm_mismatch(machine, installed, built, format_major_minor(have), quoted)
    what = f"{installed} needs a ROCm library that {machine.torch} does not include{quoted}"
    found = f"find {shlex.quote(machine.rocm_path or '/opt')} -name {shlex.quote(library + '*')}"
    return Diagnosis("ROCm library missing", what, f"{found}, then add its directory to LD_LIBRARY_PATH")


def _is_other_rocm_major(library: str, have: tuple[int, int]) -> bool:
    # ROCm 6 has libamdhip64.so.6, ROCm 7.0 to 10.0 have .so.7 (from the releases)
    number = re.fullmatch(r"libamdhip64\.so\.(\d+)", library)
    return number is not None and int(number[1]) != min(have[0], 7)


def _too_old(machine: Machine, installed: InstalledFlashAttn, library: str, kind: str, version: str) -> Diagnosis:
    """Report a glibc or libstdc++ that is older than the one of the build."""
    quoted, newer = f"`version {kind}_{version} not found` in {library}", "use a newer Linux distribution or container"
    if kind == "GLIBC":
        have = machine.python.glibc or "an older one"
        what = f"{installed} needs glibc {version} or newer, this machine has {have}: {quoted}"
        return Diagnosis("glibc too old", what, f"{INSTALL_MATCHING_WHEEL}; or {newer}")
    remedy = "conda install --channel conda-forge libstdcxx-ng" if "conda" in library else newer
    return Diagnosis("libstdc++ too old", f"{installed} needs a newer libstdc++ than the loaded one: {quoted}", remedy)


def _missing_module(machine: Machine, installed: InstalledFlashAttn, name: str, facts: DoctorFacts) -> Diagnosis | None:
    if name == "flash_attn_2_cuda":
        return _no_kernels(machine, installed)
    if name == "triton":
        return diagnose_missing_triton(machine, installed, facts)
    if name == "aiter":
        what = f"the Triton backend of {installed} needs the package aiter: `No module named 'aiter'`"
        return Diagnosis("no aiter", what, f"{INSTALL_MATCHING_WHEEL}; Triton wheels up to 2.8.3 do not need aiter")
    required = (one for one in (*installed.missing_requirements, "einops") if one.replace("-", "_") == name)
    return next((missing_requirement(machine, installed, one) for one in required), None)


def missing_requirement(machine: Machine, installed: InstalledFlashAttn, name: str) -> Diagnosis:
    """Report a required package that is missing, as after ``--no-deps``; only sites have the fallback."""
    what = f"{installed} requires {name}, which is not installed"
    command = shlex.join(choose_installer(machine).install_without_dependencies(name))
    return Diagnosis("missing requirement", what, INSTALL_MATCHING_WHEEL if name == FALLBACK_NAME else command)


def _no_kernels(machine: Machine, installed: InstalledFlashAttn) -> Diagnosis:
    """Report why Python finds no ``flash_attn_2_cuda``."""
    if installed.extension:
        python, module = machine.python, Path(installed.extension).name
        what = f"Python {python.version} ({python.tag}, {python.machine}) cannot load {module} of {installed}"
        return Diagnosis("Python mismatch", f"{what}: {_NO_KERNELS}")
    if not installed.has_triton_backend:
        what = f"{installed} contains neither compiled kernels nor the Triton backend: {_NO_KERNELS}"
        return Diagnosis("no kernels", what)
    value = machine.environ.get(TRITON_VARIABLE)
    state = f"{TRITON_VARIABLE} is not set" if value is None else f"{TRITON_VARIABLE} is {value!r}, not 'TRUE'"
    what = f"{installed} has no compiled kernels, only the Triton backend, and {state}: {_NO_KERNELS}"
    return Diagnosis("Triton is not enabled", what, f"export {TRITON_VARIABLE}=TRUE")
