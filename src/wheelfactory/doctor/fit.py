"""Match wheels against a machine: the matching ones, best first, and all reasons why each other one does not match.

A wheel matches if it is built for the machine's torch (major.minor), the Python, a glibc no newer than the system's
and all visible GPUs (or some, if the others can be hidden). A CK wheel also needs the torch that it was built with, for
its ROCm: PyTorch's or AMD's, or one that defines all its symbols. A Triton wheel needs no ROCm of its own, only a
Triton that compiles its kernels; it also matches if it may work on the GPUs. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from wheelfactory.core.cell import (
    FALLBACK_NAME,
    FLASH_ATTN_FALLBACK,
    FLASH_ATTN_NAME,
    OFFERED_PRODUCTS,
    PRODUCTS,
    Backend,
    Cell,
    local_version,
    major_minor,
    name_python,
    product_name,
    public_version,
)
from wheelfactory.core.label import Label
from wheelfactory.core.published import best_first_key, version_key
from wheelfactory.core.torch_build import TorchOrigin, find_origin, rocm_of_torch
from wheelfactory.doctor.aiter_checks import find_overwritten_aiter
from wheelfactory.doctor.diagnosis import abi_age, find_major_minor, format_major_minor
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.gpu_match import gpu_warnings, hide_gpus_hint, lacks_code, list_visible_gpus, missing_archs
from wheelfactory.doctor.machine import InstalledTorch, Machine, Python
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.torch_checks import find_tritons
from wheelfactory.wheel.elf.mangled import find_missing


@dataclass(frozen=True)
class NearMiss:
    """A wheel that does not match, and why."""

    wheel: PublishedWheel
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """The result of matching a manifest against a machine."""

    fitting: tuple[PublishedWheel, ...]
    """Best first."""
    near_misses: tuple[NearMiss, ...]
    """All other wheels, fewest reasons first."""
    with_other_torch: PublishedWheel | None
    """The best wheel that only needs another torch, if PyTorch has that torch for this Python.

    None if a wheel matches already, or if every wheel has other mismatches too.
    """
    fallbacks: tuple[PublishedWheel, ...] = ()
    """If no wheel matches, and the installed torch can run it: the newest fallback, then the one named flash-attn."""
    measured: PublishedWheel | None = None
    """If no wheel matches: the best that only was built with another torch, if the installed one has its symbols."""
    unfiltered: PublishedWheel | None = None
    """If no wheel of the requested backend and release matches: the best of all others."""


def find_fit(
    wheels: Sequence[PublishedWheel],
    machine: Machine,
    facts: DoctorFacts,
    *,
    backend: Backend | None = None,
    flash_attn: str | None = None,
) -> Fit:
    """Match the flash-attn wheels, limited to `backend` and the release `flash_attn` if given."""
    candidates = [
        wheel
        for wheel in wheels
        if wheel.project == FLASH_ATTN_NAME
        and wheel.label
        and backend in (None, wheel.label.backend)
        and flash_attn in (None, public_version(wheel.version), wheel.version)
    ]
    candidates.sort(key=lambda wheel: wheel.filename, reverse=True)  # the newest Python first among equals
    candidates.sort(key=lambda wheel: best_first_key(*_published(wheel)))
    judged = [
        (wheel, tuple(_torch_reasons(wheel, machine, facts)), tuple(_other_reasons(wheel, machine, facts)))
        for wheel in candidates
    ]
    fitting = [wheel for wheel, torch_reasons, others in judged if not torch_reasons and not others]
    fitting.sort(key=lambda wheel: _preference(wheel, machine, facts))
    misses = [
        NearMiss(wheel, torch_reasons + others) for wheel, torch_reasons, others in judged if torch_reasons or others
    ]
    misses.sort(key=lambda miss: len(miss.reasons))  # the sort is stable: the best stays first among equals
    if fitting:
        return Fit(tuple(fitting), tuple(misses), None)
    possible = [
        (_change(wheel, wheel.cell, machine, facts), wheel)
        for wheel, _, others in judged
        if not others and wheel.cell and _has_torch(wheel.cell, machine.python, facts)
    ]
    nearest = min(possible, key=lambda one: one[0])[1] if possible and may_change_torch(machine) else None
    have = find_major_minor(machine.torch.version) if machine.torch else None
    only_torch = (wheel for wheel, why, others in judged if len(why) == 1 and not others)
    loading = (wheel for wheel in only_torch if have and format_major_minor(have) in wheel.other_torches)
    fit = Fit((), tuple(misses), nearest, measured=next(loading, None))
    others = find_fit(wheels, machine, facts).fitting if backend or flash_attn else ()
    if others:
        return replace(fit, unfiltered=others[0])
    return replace(fit, fallbacks=find_fallbacks(wheels, machine, facts))


def _published(wheel: PublishedWheel) -> tuple[Label, str, str, datetime]:
    assert wheel.label  # find_fit keeps only wheels with a label
    published = datetime.fromisoformat(wheel.published.replace("Z", "+00:00"))
    return wheel.label, wheel.version, wheel.filename, published


def may_change_torch(machine: Machine) -> bool:
    """Whether another torch may be advised: never for AMD's builds, nightlies and own builds for ROCm, nor in WSL."""
    torch = machine.torch
    if machine.container == "wsl":
        return False
    return torch is None or find_origin(torch.version) is TorchOrigin.PYTORCH or not (torch.hip or torch.error)


def _change(wheel: PublishedWheel, cell: Cell, machine: Machine, facts: DoctorFacts) -> tuple[object, ...]:
    """Return how far a wheel's torch is from the machine's: first in ROCm, then in torch; previews come last."""
    assert wheel.label
    have = find_major_minor(machine.torch.version) if machine.torch else None
    rocm = find_torch_rocm(machine.torch, facts) if machine.torch else None
    rocm = rocm or (find_major_minor(machine.rocm) if machine.rocm else None)
    newest = next(name for name in facts.support.axes["flash-attn"] if "+git" not in name)
    is_old = public_version(wheel.version) != public_version(newest)
    torch = _distance(wheel.label.torch, have) if have else 0
    newer = tuple(-number for number in version_key(cell.torch))
    is_triton = wheel.label.backend is not Backend.CK
    return bool(wheel.label.commit), is_old, _distance(wheel.label.rocm, rocm), torch, is_triton, newer


def _distance(one: tuple[int, int], other: tuple[int, int] | None) -> int:
    return abs((one[0] - other[0]) * 100 + one[1] - other[1]) if other else 0


def _has_torch(cell: Cell, python: Python, facts: DoctorFacts) -> bool:
    """Whether PyTorch publishes the cell's torch for its ROCm and this Python."""
    if cell.amd_torch:
        return False
    have, (oldest, newest) = find_major_minor(python.version), facts.find_torch(major_minor(cell.torch)).pythons
    if cell.rocm not in facts.indexes or facts.support.is_other_build({"torch": cell.torch, "rocm": cell.rocm}):
        return False
    return has_rocm_torch(python) and have is not None and oldest <= have <= newest


def has_rocm_torch(python: Python) -> bool:
    """Whether PyTorch builds torch for ROCm for this kind of Python and system, in some version."""
    # only for CPython on x86_64 Linux with glibc
    system = (python.system, python.machine) == ("Linux", "x86_64") and python.glibc is not None
    return system and python.tag.startswith("cp")


def find_missing_dependencies(wheels: Iterable[PublishedWheel], machine: Machine) -> tuple[PublishedWheel, ...]:
    """Return the newest wheel of each dependency that the manifest lists and the machine lacks."""
    found: dict[str, PublishedWheel] = {}
    for wheel in sorted(wheels, key=lambda wheel: version_key(wheel.version)):
        if wheel.project in (FLASH_ATTN_NAME, *OFFERED_PRODUCTS) or wheel.yanked is not None:
            continue
        if wheel.project not in machine.packages:
            found[wheel.project] = wheel
    return tuple(found[project] for project in sorted(found))


def dependencies_of(wheel: PublishedWheel, found: Sequence[PublishedWheel]) -> tuple[PublishedWheel, ...]:
    """Return the missing dependencies that a wheel requires: not every wheel requires every product."""
    products = wheel.label.requires if wheel.label else ()
    return tuple(one for one in found if one.project in products or one.project not in PRODUCTS)


def find_fallbacks(
    wheels: Iterable[PublishedWheel], machine: Machine, facts: DoctorFacts
) -> tuple[PublishedWheel, ...]:
    """Return the newest fallback, then the one named flash-attn, if the installed torch imports and can run them."""
    torch = machine.torch
    have = find_major_minor(torch.version) if torch and not torch.error else None
    if have is None or have < facts.fallback_torch or lacks_code(machine):
        return ()
    found = sorted((one for one in wheels if one.yanked is None), key=lambda wheel: version_key(wheel.version))
    newest = {product_name(wheel.project, wheel.version): wheel for wheel in found}
    names = (FALLBACK_NAME, FLASH_ATTN_FALLBACK) if FALLBACK_NAME in newest else ()
    return tuple(newest[name] for name in names if name in newest)


def _preference(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> tuple[object, ...]:
    """Return a sort key: releases first, then wheels whose GPUs need no hiding, then wheels that promise all GPUs."""
    assert wheel.label
    promised = not any(True for _ in gpu_warnings(wheel, machine, facts))
    backend, _, *rest = best_first_key(*_published(wheel))
    newest = tuple(-number for number in version_key(wheel.version))
    other_rocm = _distance(wheel.label.rocm, find_torch_rocm(machine.torch, facts) if machine.torch else None)
    key = (backend, newest, other_rocm, *(-number for number in (*wheel.label.torch, *wheel.label.rocm)), *rest)
    return bool(wheel.label.commit), bool(hide_gpus_hint(wheel, machine, facts)), not promised, key


def _torch_reasons(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Iterator[str]:
    """Yield each mismatch with the installed torch."""
    assert wheel.label
    torch = machine.torch
    if torch is None:
        yield "torch is not installed"
        return
    built, have = wheel.label.torch, find_major_minor(torch.version)
    if have != built:
        version = format_major_minor(have) if have else torch.version or "an unknown version"
        yield f"built for torch {format_major_minor(built)}, you have {version}"
    rocm = find_torch_rocm(torch, facts)
    if rocm is None and not torch.hip:
        yield torch_build_text(torch)
    elif wheel.label.backend is Backend.CK:
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
    assert wheel.label
    if rocm != wheel.label.rocm:
        have = format_major_minor(rocm) if rocm else "an unknown one"
        yield f"built for ROCm {format_major_minor(wheel.label.rocm)}, your torch for {have}"
    elif find_origin(torch.version) is not (TorchOrigin.AMD if wheel.label.amd_torch else TorchOrigin.PYTORCH):
        built = f"built with {'AMD' if wheel.label.amd_torch else 'PyTorch'}'s torch; yours"
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
    if lacks_own or wheel.label is None or wheel.label.backend is Backend.CK or window is None or len(tritons) != 1:
        return
    ((name, version),) = tritons
    have = find_major_minor(version)
    if have and not window[0] <= have < window[1]:
        first, end = map(format_major_minor, window)
        yield f"needs Triton >={first},<{end}, you have {name} {version}"


def find_torch_rocm(torch: InstalledTorch, facts: DoctorFacts) -> tuple[int, int] | None:
    """Return the ROCm of a torch as (major, minor); None if it is not built for ROCm, or names none."""
    return rocm_of_torch(torch.version, torch.hip, torch.rocm, facts.hips)


def torch_build_text(torch: InstalledTorch) -> str:
    """Describe a torch that `find_torch_rocm` finds no ROCm for."""
    local = local_version(torch.version)
    if torch.cuda or (torch.error and re.match(r"cu\d", local)):
        return "torch is a CUDA build"
    if torch.error and local != "cpu":
        return "torch cannot be imported, so its ROCm version is unknown"
    return "torch is a CPU build"


def _other_reasons(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Iterator[str]:
    """Yield each mismatch with the Python, the system and the GPUs, and whether the wheel is yanked."""
    yield from _python_reasons(wheel, machine)
    yield from _system_reasons(wheel, machine)
    yield from find_overwritten_aiter(wheel, machine)
    if wheel.label and wheel.label.backend is Backend.CK and not list_visible_gpus(machine):
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
    if wheel.machine is None:  # a pure-Python wheel, whose kernels Triton compiles
        if python.system != "Linux":
            yield f"checked on Linux, this system is {python.system}"
        return
    if python.system != "Linux":
        yield f"built for Linux, this system is {python.system}"
    elif wheel.machine != python.machine:
        yield f"built for {wheel.machine}, this machine is {python.machine}"
    elif wheel.glibc and python.glibc is None:
        yield f"needs glibc {wheel.glibc}, this system has another C library"
    elif wheel.glibc and python.glibc and version_key(python.glibc) < version_key(wheel.glibc):
        yield f"needs glibc {wheel.glibc}, this system has {python.glibc}"
