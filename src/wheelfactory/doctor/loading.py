"""What importing flash-attn said last -> why it does not import."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.doctor.access import about_code
from wheelfactory.doctor.diagnosis import TAKE_FITTING, Diagnosis, install, numbers, shown_torch, uninstall
from wheelfactory.doctor.facts import Facts
from wheelfactory.doctor.machine import Installed, Machine
from wheelfactory.doctor.origin import built_for_rocm, has_label, is_compiled, shown
from wheelfactory.doctor.symbols import explain_symbol
from wheelfactory.doctor.torches import another_rocm, rocm_torch
from wheelfactory.doctor.triton import VARIABLE, no_triton, outside_window

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


@dataclass(frozen=True)
class Failure:
    """A flash-attn that does not import, and the machine on which it does not."""

    machine: Machine
    installed: Installed
    facts: Facts

    @property
    def error(self) -> str:
        """What the import said last."""
        return self.installed.error


def explain_error(machine: Machine, installed: Installed, facts: Facts) -> Diagnosis | None:
    """Why flash-attn does not import; None if it does, or if torch is what does not."""
    if not installed.error or machine.torch is None or machine.torch.error:
        return None
    failure = Failure(machine, installed, facts)
    found = (explain(failure) for explain in _EXPLANATIONS)
    return next((diagnosis for diagnosis in found if diagnosis), None) or _unknown(failure)


def _leftover(failure: Failure) -> Diagnosis | None:
    stray = next((path for path in leftovers(failure.installed) if path in failure.error), None)
    return leftover(failure.installed, stray) if stray else None


def leftovers(installed: Installed) -> list[str]:
    """The compiled modules beside a flash-attn that has none: Python takes them before anything of the same name.

    None where two flash-attn are in that folder: they are the other's then.
    """
    if is_compiled(installed) or beside(installed):
        return []
    return [path for path in installed.strays if str(Path(path).parent) == installed.location]


def beside(installed: Installed) -> list[str]:
    """The further flash-attn in the folder of the one that Python takes."""
    return [other for other in installed.others if other.endswith(f" in {installed.location}")]


def leftover(installed: Installed, stray: str) -> Diagnosis:
    """For a compiled module that an earlier flash-attn left beside one that has none."""
    what = f"{stray} is not of {shown(installed)}; an earlier flash-attn left it, and Python takes it first"
    if stray in installed.error:
        what = f"{what}: `{installed.error}`"
    return Diagnosis("leftover of an earlier install", what, f"rm {shlex.quote(stray)}")


def _undefined_symbol(failure: Failure) -> Diagnosis | None:
    match = re.search(r"undefined symbol: ([^\s,]+)", failure.error)
    return explain_symbol(failure.machine, failure.installed, match[1]) if match else None


def _missing_library(failure: Failure) -> Diagnosis | None:
    match = re.search(rf"(lib[^\s:/]+): {_NOT_FOUND}", failure.error)
    if match is None:
        return None
    if _CUDA_LIBRARY.match(match[1]):
        return cuda_build(failure.installed, f": `{match[1]}: {_NOT_FOUND}`")
    return _missing_rocm(failure, match[1]) if _HIP_LIBRARY.match(match[1]) else None


def cuda_build(installed: Installed, said: str = "") -> Diagnosis:
    """For a flash-attn that is for CUDA; what pip builds from PyPI's sources beside a CUDA compiler is."""
    why = "" if has_label(installed) else ", and has no label: it was made from the sources on PyPI, or by others"
    return Diagnosis("built for CUDA", f"{shown(installed)} is built for CUDA{why}{said}", TAKE_FITTING)


def _missing_rocm(failure: Failure, library: str) -> Diagnosis:
    """A library of ROCm, which torch brings, or one of torch for ROCm."""
    machine, installed, torch = failure.machine, failure.installed, failure.machine.torch
    said = f"`{library}: {_NOT_FOUND}`"
    if torch is None or torch.hip is None:
        what = f"{shown(installed)} needs a torch that is built for ROCm, {shown_torch(machine)} is not: {said}"
        return Diagnosis("torch is not for ROCm", what, rocm_torch(machine, installed))
    built = built_for_rocm(installed)
    if (built and numbers(torch.hip) != built) or _is_of_other_major(library, torch.hip):
        return another_rocm(machine, installed, built, said)
    what = f"{shown(installed)} does not find a library of ROCm, nor does {shown_torch(machine)} bring it: {said}"
    found = f"find {shlex.quote(machine.rocm_path or '/opt')} -name {shlex.quote(library + '*')}"
    return Diagnosis("no library of ROCm", what, f"{found}, and add the folder to LD_LIBRARY_PATH")


def _is_of_other_major(library: str, hip: str) -> bool:
    """``libamdhip64.so.6`` is that of ROCm 6, and ``.so.7`` that of 7.0 to 10.0 (ROCm's releases)."""
    number = re.fullmatch(r"libamdhip64\.so\.(\d+)", library)
    have = numbers(hip)
    return number is not None and have is not None and int(number[1]) != min(have[0], 7)


def _too_old(failure: Failure) -> Diagnosis | None:
    """glibc or libstdc++ of the machine is older than that of the build."""
    match = _TOO_OLD.search(failure.error)
    if match is None:
        return None
    library, kind, version = match.groups()
    name, said = shown(failure.installed), f"`version {kind}_{version} not found` in {library}"
    if kind == "GLIBC":
        have = f"{failure.machine.python.glibc or 'an older one'}"
        what = f"{name} needs glibc {version} or newer, this machine has {have}: {said}"
        return Diagnosis("glibc too old", what, f"{TAKE_FITTING}; or use a newer distribution, or a container of one")
    cure = "use a newer distribution, or a container of one"
    if "conda" in library:
        cure = "conda install --channel conda-forge libstdcxx-ng"
    return Diagnosis("libstdc++ too old", f"{name} needs a newer libstdc++ than the one it was given: {said}", cure)


def _damaged(failure: Failure) -> Diagnosis | None:
    match = _DAMAGED.search(failure.error)
    if match is None:
        return None
    what = f"files of {shown(failure.installed)} are damaged or gone: `{match[0]}`"
    return Diagnosis("damaged files", what, f"{uninstall(failure.machine, 'flash-attn')}; then {TAKE_FITTING}")


def _missing_module(failure: Failure) -> Diagnosis | None:
    match = re.search(r"No module named '(\w+)", failure.error)
    if match is None:
        return None
    name, installed = match[1], failure.installed
    if name == "flash_attn_2_cuda":
        return _no_kernels(failure)
    if name == "triton":
        return no_triton(failure.machine, installed)
    if name == "aiter":
        what = f"the Triton backend of {shown(installed)} is another package, aiter: `No module named 'aiter'`"
        return Diagnosis("no aiter", what, f"{TAKE_FITTING}; the Triton wheels of 2.8.3 and older need no aiter")
    return missing_requirement(failure.machine, installed, name) if name in installed.missing else None


def missing_requirement(machine: Machine, installed: Installed, name: str) -> Diagnosis:
    """For a package that flash-attn requires and nobody installed, as ``--no-deps`` does not."""
    what = f"{shown(installed)} requires {name}, which this Python does not have"
    return Diagnosis("missing requirement", what, install(machine, "--no-deps", name))


def _no_kernels(failure: Failure) -> Diagnosis:
    """A compiled module for another Python, or a wheel without one."""
    machine, installed = failure.machine, failure.installed
    if installed.extension:
        python, module = machine.python, Path(installed.extension).name
        what = f"Python {python.version} ({python.tag}, {python.machine}) does not take {module} of {shown(installed)}"
        return Diagnosis("another Python", f"{what}: {_NO_KERNELS}", TAKE_FITTING)
    if not installed.triton:
        what = f"{shown(installed)} holds neither compiled kernels nor the Triton backend: {_NO_KERNELS}"
        return Diagnosis("no kernels", what, TAKE_FITTING)
    value = machine.environ.get(VARIABLE)
    seen = f"{VARIABLE} is not set" if value is None else f"{VARIABLE} is {value!r} and not exactly 'TRUE'"
    what = f"{shown(installed)} has no compiled kernels, only the Triton backend, and {seen}: {_NO_KERNELS}"
    return Diagnosis("Triton is not enabled", what, f"export {VARIABLE}=TRUE")


def _refused_by_triton(failure: Failure) -> Diagnosis | None:
    if _REFUSED_BY_TRITON.search(failure.error):
        return outside_window(failure.machine, failure.installed, failure.facts, failure.error)
    return None


def _other_backend(failure: Failure) -> Diagnosis | None:
    """The activation of our Triton wheels, which refuses where the variable asks for the compiled kernels."""
    if not failure.error.startswith(f"ImportError: {VARIABLE}="):
        return None
    what = failure.error.partition(": ")[2]
    return Diagnosis("the other backend is asked for", what, f"unset {VARIABLE}; or, for ck, {TAKE_FITTING}")


def _no_code(failure: Failure) -> Diagnosis | None:
    if not _NO_CODE.search(failure.error):
        return None
    what = f"{shown(failure.installed)} has no code for this GPU: `{failure.error}`"
    known = next(about_code(failure.machine, failure.installed), None)
    return known or Diagnosis("no code for this GPU", what, TAKE_FITTING)


def _unknown(failure: Failure) -> Diagnosis:
    """A crash, a hang, or words that are not known here."""
    more = shlex.join([failure.machine.python.executable, "-X", "faulthandler", "-c", _IMPORT_LINE])
    if ".so" in failure.error:
        more = f"LD_DEBUG=libs {more}"
    what = f"importing {shown(failure.installed)} failed for a reason that is not known here: `{failure.error}`"
    return Diagnosis("unknown import error", what, f"see more with: {more}")


_EXPLANATIONS: tuple[Callable[[Failure], Diagnosis | None], ...] = (
    _leftover,
    _undefined_symbol,
    _missing_library,
    _too_old,
    _missing_module,
    _damaged,
    _refused_by_triton,
    _other_backend,
    _no_code,
)
