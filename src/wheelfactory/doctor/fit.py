"""Match wheels against a machine: the matching ones, best first, and all reasons why each other one does not match.

A wheel matches if it is built for the machine's torch (major.minor), that torch's ROCm and C++ ABI, the Python, a glibc
no newer than the system's, and all visible GPUs (or some of them, if the others can be hidden). A Triton wheel also
matches if it may work on the GPUs, and if its kernels support the installed Triton. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from wheelfactory.core.cell import (
    AITER_NAME,
    FALLBACK_NAME,
    Backend,
    Cell,
    local_version,
    major_minor,
    name_python,
    public_version,
)
from wheelfactory.core.published import best_first_key, version_key
from wheelfactory.core.support import Answer
from wheelfactory.doctor.aiter_checks import find_overwritten_aiter
from wheelfactory.doctor.diagnosis import abi_age, find_major_minor, format_major_minor
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.gpu_match import gpu_warnings, hide_gpus_hint, missing_archs
from wheelfactory.doctor.machine import InstalledTorch, Machine, Python
from wheelfactory.doctor.published_wheels import PublishedWheel
from wheelfactory.doctor.torch_checks import find_tritons

FLASH_ATTN_PROJECT = "flash-attn"


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
    fallback: PublishedWheel | None = None
    """If no wheel matches: the newest fallback that the installed torch can run."""


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
        if wheel.project == FLASH_ATTN_PROJECT
        and wheel.label
        and backend in (None, wheel.label.backend)
        and flash_attn in (None, public_version(wheel.version), wheel.version)
    ]
    candidates.sort(key=lambda wheel: wheel.filename, reverse=True)  # the newest Python first among equals
    candidates.sort(key=lambda wheel: _preference(wheel, machine, facts))
    judged = [
        (wheel, tuple(_torch_reasons(wheel, machine, facts)), tuple(_other_reasons(wheel, machine, facts)))
        for wheel in candidates
    ]
    fitting = tuple(wheel for wheel, torch_reasons, others in judged if not torch_reasons and not others)
    misses = [
        NearMiss(wheel, torch_reasons + others) for wheel, torch_reasons, others in judged if torch_reasons or others
    ]
    misses.sort(key=lambda miss: len(miss.reasons))  # the sort is stable: the best stays first among equals
    if fitting:
        return Fit(fitting, tuple(misses), None)
    possible = (
        wheel
        for wheel, _, others in judged
        if not others and wheel.cell and _has_torch(wheel.cell, machine.python, facts)
    )
    return Fit((), tuple(misses), next(possible, None), find_fallback(wheels, machine, facts))


def _has_torch(cell: Cell, python: Python, facts: DoctorFacts) -> bool:
    """Whether PyTorch publishes the cell's torch for its ROCm and this Python."""
    have, (oldest, newest) = find_major_minor(python.version), facts.find_torch(major_minor(cell.torch)).pythons
    pair = {"torch": cell.torch, "rocm": cell.rocm}
    is_known = all(value in facts.support.axes[axis] for axis, value in pair.items())
    if is_known and facts.support.find_support(pair).answer is Answer.DOES_NOT_WORK:
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
        # flash-attn does not depend on the fallback, which shares the manifest
        if wheel.project in (FLASH_ATTN_PROJECT, FALLBACK_NAME) or wheel.yanked is not None:
            continue
        if wheel.project not in machine.packages:
            found[wheel.project] = wheel
    return tuple(found[project] for project in sorted(found))


def dependencies_of(wheel: PublishedWheel, found: Sequence[PublishedWheel]) -> tuple[PublishedWheel, ...]:
    """Return those of the missing dependencies that a wheel requires: aiter only if its kernels are there."""
    takes_kernels = wheel.label is not None and wheel.label.uses_aiter
    return tuple(one for one in found if takes_kernels or one.project != AITER_NAME)


def find_fallback(wheels: Iterable[PublishedWheel], machine: Machine, facts: DoctorFacts) -> PublishedWheel | None:
    """Return the newest fallback wheel if the installed torch, of any build, imports and is new enough for it."""
    torch = machine.torch
    have = find_major_minor(torch.version) if torch and not torch.error else None
    if have is None or have < facts.fallback_torch:
        return None
    found = (wheel for wheel in wheels if wheel.project == FALLBACK_NAME and wheel.yanked is None)
    return max(found, key=lambda wheel: version_key(wheel.version), default=None)


def _preference(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> tuple[object, ...]:
    """Return a sort key: wheels whose GPUs need no hiding first, then releases, then wheels that promise all GPUs."""
    assert wheel.label  # find_fit keeps only wheels with a label
    promised = not any(True for _ in gpu_warnings(wheel, machine, facts))
    published = datetime.fromisoformat(wheel.published.replace("Z", "+00:00"))
    best_first = best_first_key(wheel.label, wheel.version, published)
    return bool(hide_gpus_hint(wheel, machine, facts)), bool(wheel.label.commit), not promised, best_first


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
    rocm = find_torch_rocm(torch)
    if rocm is None:
        yield torch_build_text(torch)
    elif rocm != wheel.label.rocm:
        yield f"built for ROCm {format_major_minor(wheel.label.rocm)}, your torch for {format_major_minor(rocm)}"
    if None not in (wheel.cxx11_abi, torch.cxx11_abi) and wheel.cxx11_abi != torch.cxx11_abi:
        wants, has = abi_age(new=wheel.cxx11_abi), abi_age(new=torch.cxx11_abi)
        yield f"built with the {wants} C++ ABI, your torch uses the {has} one"
    yield from _triton_reasons(wheel, machine, facts)


def _triton_reasons(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Iterator[str]:
    """Yield why the kernels of a Triton wheel do not support the installed Triton."""
    tritons = find_tritons(machine, facts)
    window = facts.find_triton_window(wheel.version)
    # with two Tritons in one directory, nobody knows which one is imported
    if wheel.label is None or wheel.label.backend is Backend.CK or window is None or len(tritons) != 1:
        return
    ((name, version),) = tritons
    have = find_major_minor(version)
    if have and not window[0] <= have < window[1]:
        first, end = map(format_major_minor, window)
        yield f"needs Triton >={first},<{end}, you have {name} {version}"


def find_torch_rocm(torch: InstalledTorch) -> tuple[int, int] | None:
    """Return the ROCm of a torch as (major, minor), from its local version if it does not import; None if not ROCm."""
    if torch.hip:
        return find_major_minor(torch.hip)
    named = re.search(r"\+rocm(\d+\.\d+)", torch.version) if torch.error else None
    return find_major_minor(named[1]) if named else None


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
