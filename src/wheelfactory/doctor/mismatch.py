"""Why a wheel does not match a machine: its torch and Triton, its Python, the system and the GPUs. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wheelfactory.core.cell import Backend, local_version, name_python
from wheelfactory.core.label import TorchOrigin
from wheelfactory.core.published import version_key
from wheelfactory.doctor.aiter_checks import find_overwritten_aiter
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.gpu_match import hide_gpus_hint, list_visible_gpus, missing_archs
from wheelfactory.doctor.machine import InstalledTorch, Machine, abi_age, find_major_minor, format_major_minor
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.triton_checks import find_tritons
from wheelfactory.wheel.elf.mangled import find_missing


def torch_reasons(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Iterator[str]:
    """Yield each mismatch with the installed torch."""
    torch = machine.torch
    if torch is None:
        yield "torch is not installed"
        return
    built, have = wheel.built.torch, torch.minor
    if have != built:
        version = format_major_minor(have) if have else torch.version or "an unknown version"
        yield f"built for torch {format_major_minor(built)}, you have {version}"
    rocm = facts.find_rocm(torch)
    if rocm is None and not torch.hip:
        yield torch_build_text(torch)
    elif wheel.built.backend is Backend.CK:
        yield from _build_reasons(wheel, torch, rocm)
    if None not in (wheel.cxx11_abi, torch.cxx11_abi) and wheel.cxx11_abi != torch.cxx11_abi:
        wants, has = abi_age(new=wheel.cxx11_abi), abi_age(new=torch.cxx11_abi)
        yield f"built with the {wants} C++ ABI, your torch uses the {has} one"
    installed = machine.flash_attn
    if installed and installed.version == wheel.version and "undefined symbol" in installed.error:
        yield "it is installed, and does not import"
    yield from _triton_reasons(wheel, machine, facts)


def _build_reasons(wheel: PublishedWheel, torch: InstalledTorch, rocm: tuple[int, int] | None) -> Iterator[str]:
    """Yield why the compiled code of a wheel does not fit a build of torch."""
    if rocm != wheel.built.rocm:
        have = format_major_minor(rocm) if rocm else "an unknown one"
        yield f"built for ROCm {format_major_minor(wheel.built.rocm)}, your torch for {have}"
    elif torch.origin is not (TorchOrigin.AMD if wheel.built.amd_torch else TorchOrigin.PYTORCH):
        built = f"built with {'AMD' if wheel.built.amd_torch else 'PyTorch'}'s torch; yours"
        if missing := find_missing(wheel.torch_symbols, torch.exports):
            yield f"{built}, another build, does not define {missing}"
        elif not wheel.torch_symbols:
            yield f"{built} is another build, and the wheel does not list what it needs of it"


def _triton_reasons(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Iterator[str]:
    """Yield why the kernels of a Triton wheel do not support the installed Triton."""
    tritons = find_tritons(machine, facts)
    window = facts.find_triton_window(wheel.version)
    # with two Tritons in one directory, nobody knows which one is imported; an unmet one is installed before the wheel
    lacks_own = machine.torch is not None and any("triton" in need.name for need in machine.torch.unmet)
    if lacks_own or wheel.built.backend is Backend.CK or window is None or len(tritons) != 1:
        return
    ((name, version),) = tritons
    have = find_major_minor(version)
    if have and not window[0] <= have < window[1]:
        first, end = map(format_major_minor, window)
        yield f"needs Triton >={first},<{end}, you have {name} {version}"


def torch_build_text(torch: InstalledTorch) -> str:
    """Describe a torch that `DoctorFacts.find_rocm` finds no ROCm for."""
    if torch.is_for_cuda:
        return "torch is a CUDA build"
    if torch.error and local_version(torch.version) != "cpu":
        return "torch cannot be imported, so its ROCm version is unknown"
    return "torch is a CPU build"


def other_reasons(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Iterator[str]:
    """Yield each mismatch with the Python, the system and the GPUs, and whether the wheel is yanked."""
    yield from _python_reasons(wheel, machine)
    yield from _system_reasons(wheel, machine)
    yield from find_overwritten_aiter(wheel, machine)
    if wheel.built.backend is Backend.CK and not list_visible_gpus(machine):
        yield "no GPU is visible, and it has code for some only"
    if not hide_gpus_hint(wheel, machine, facts):  # otherwise the GPUs without code can be hidden
        yield from missing_archs(wheel, machine, facts)
    if wheel.yanked is not None:
        yield f"yanked: {wheel.yanked or 'no reason given'}"


def _python_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    python = machine.python
    if wheel.python_tag not in (None, python.tag):
        yield f"built for Python {name_python(str(wheel.python_tag))}, you have {name_python(python.tag)}"
    least = re.search(r">=\s*(\d+)\.(\d+)", wheel.requires_python)
    have = find_major_minor(python.version)
    if least and have and have < (int(least[1]), int(least[2])):
        yield f"needs Python {least[1]}.{least[2]} or newer, you have {format_major_minor(have)}"


def _system_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    python = machine.python
    if python.system != "Linux":  # a wheel for any machine is pure Python, whose kernels Triton compiles
        yield f"{'built for' if wheel.machine else 'checked on'} Linux, this system is {python.system}"
    elif wheel.machine is None:
        return
    elif wheel.machine != python.machine:
        yield f"built for {wheel.machine}, this machine is {python.machine}"
    elif wheel.glibc and python.glibc is None:
        yield f"needs glibc {wheel.glibc}, this system has another C library"
    elif wheel.glibc and python.glibc and version_key(python.glibc) < version_key(wheel.glibc):
        yield f"needs glibc {wheel.glibc}, this system has {python.glibc}"
