"""Match wheels against a machine: the matching ones, best first, and all reasons why each other one does not match.

A wheel matches if it is built for the machine's torch (major.minor), that torch's ROCm and C++ ABI, the Python, a glibc
no newer than the system's, and all visible GPUs (or some of them, if the others can be hidden). No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wheelfactory.core.cell import FALLBACK_NAME, Backend, Cell, major_minor
from wheelfactory.core.gpus import product_names
from wheelfactory.doctor.diagnosis import abi_age, find_major_minor, format_major_minor
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.machine import InstalledTorch, Machine, Python
from wheelfactory.doctor.published_wheels import PublishedWheel

FLASH_ATTN_PROJECT = "flash-attn"

# ROCm applies the first; HIP then applies the second, or the third if the second is unset
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


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
        and flash_attn in (None, wheel.version.partition("+")[0], wheel.version)
    ]
    candidates.sort(key=lambda wheel: (not find_condition(wheel, machine), *_preference(wheel)), reverse=True)
    judged = [
        (wheel, tuple(_torch_reasons(wheel, machine)), tuple(_other_reasons(wheel, machine))) for wheel in candidates
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
    """Whether PyTorch publishes the cell's torch for this Python."""
    have, (oldest, newest) = find_major_minor(python.version), facts.find_torch(major_minor(cell.torch)).pythons
    # PyTorch builds torch for ROCm only for CPython on x86_64 Linux with glibc
    system = (python.system, python.machine) == ("Linux", "x86_64") and python.glibc is not None
    return system and python.tag.startswith("cp") and have is not None and oldest <= have <= newest


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


def find_fallback(wheels: Iterable[PublishedWheel], machine: Machine, facts: DoctorFacts) -> PublishedWheel | None:
    """Return the newest fallback wheel if the installed torch, of any build, imports and is new enough for it."""
    torch = machine.torch
    have = find_major_minor(torch.version) if torch and not torch.error else None
    if have is None or have < facts.fallback_torch:
        return None
    found = (wheel for wheel in wheels if wheel.project == FALLBACK_NAME and wheel.yanked is None)
    return max(found, key=lambda wheel: version_key(wheel.version), default=None)


def version_key(version: str) -> tuple[tuple[int, ...], int, str]:
    """Return a sort key: numeric, pre-releases before their release, post-releases after it.

    A subset of PEP 440 without the `packaging` library, sufficient for the versions in a manifest.
    """
    public = version.partition("+")[0]
    release = re.match(r"\d+(\.\d+)*", public)
    numbers = tuple(int(part) for part in release[0].split(".")) if release else ()
    later = re.search(r"post(\d+)", public)
    prerelease = re.search(r"\d(a|b|rc|\.?dev)\d", public)
    return numbers, int(later[1]) + 1 if later else -1 if prerelease else 0, public


def _preference(wheel: PublishedWheel) -> tuple[object, ...]:
    """Return a sort key, best last: CK before Triton, then the newest."""
    assert wheel.label  # find_fit keeps only wheels with a label
    version = version_key(wheel.version)
    label = wheel.label
    # CK is compiled ahead of time, Triton on first use
    return label.backend is Backend.CK, version, label.torch, label.rocm, wheel.published, wheel.filename


def _torch_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
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


def find_torch_rocm(torch: InstalledTorch) -> tuple[int, int] | None:
    """Return the ROCm of a torch as (major, minor), from its local version if it does not import; None if not ROCm."""
    if torch.hip:
        return find_major_minor(torch.hip)
    named = re.search(r"\+rocm(\d+\.\d+)", torch.version) if torch.error else None
    return find_major_minor(named[1]) if named else None


def torch_build_text(torch: InstalledTorch) -> str:
    """Describe a torch that `find_torch_rocm` finds no ROCm for."""
    local = torch.version.partition("+")[2]
    if torch.cuda or (torch.error and re.match(r"cu\d", local)):
        return "torch is a CUDA build"
    if torch.error and local != "cpu":
        return "torch cannot be imported, so its ROCm version is unknown"
    return "torch is a CPU build"


def _other_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    """Yield each mismatch with the Python, the system and the GPUs, and whether the wheel is yanked."""
    yield from _python_reasons(wheel, machine)
    yield from _system_reasons(wheel, machine)
    if not find_condition(wheel, machine):  # otherwise the GPUs without code can be hidden
        yield from _lacking(wheel, machine)
    if wheel.yanked is not None:
        yield f"yanked: {wheel.yanked or 'no reason given'}"


def _python_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    python = machine.python
    if wheel.python_tag not in (None, python.tag):
        yield f"built for Python {_tag_text(str(wheel.python_tag))}, you have {_tag_text(python.tag)}"
    least = re.search(r">=\s*(\d+)\.(\d+)", wheel.requires_python)
    have = find_major_minor(python.version)
    if least and have and have < (int(least[1]), int(least[2])):
        yield f"needs Python {least[1]}.{least[2]} or newer, you have {format_major_minor(have)}"


def _tag_text(tag: str) -> str:
    """Return ``3.11`` for ``cp311``, ``3.13 free-threaded`` for ``cp313t``, ``PyPy 3.10`` for ``pp310``."""
    match = re.fullmatch(r"(cp|pp)(\d)(\d+)(t?)", tag)
    if match is None:
        return tag
    return f"{'PyPy ' if match[1] == 'pp' else ''}{match[2]}.{match[3]}{' free-threaded' if match[4] else ''}"


def _system_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    python = machine.python
    if wheel.machine is None:  # a pure-Python wheel; torch for ROCm then limits the system
        return
    if python.system != "Linux":
        yield f"built for Linux, this system is {python.system}"
    elif wheel.machine != python.machine:
        yield f"built for {wheel.machine}, this machine is {python.machine}"
    elif wheel.glibc and python.glibc is None:
        yield f"needs glibc {wheel.glibc}, this system has another C library"
    elif wheel.glibc and python.glibc and version_key(python.glibc) < version_key(wheel.glibc):
        yield f"needs glibc {wheel.glibc}, this system has {python.glibc}"


def find_condition(wheel: PublishedWheel, machine: Machine) -> str:
    """Return how to hide the GPUs that a wheel has no code for, on a machine that mixes GPU types.

    Empty if the wheel covers all visible GPUs, or none of them, or if some GPUs are hidden already.
    """
    seen = list_visible_gpus(machine)
    covered = [number for number, (arch, _) in enumerate(seen) if arch in _archs(wheel)]
    if not covered or len(covered) == len(seen) or any(machine.environ.get(name) for name in _VISIBLE):
        return ""  # with a visibility variable set, HIP would count the GPUs from another first one
    why = " and ".join(_lacking(wheel, machine))
    return f"first run `export HIP_VISIBLE_DEVICES={','.join(map(str, covered))}`: the wheel {why}"


def _archs(wheel: PublishedWheel) -> set[str]:
    """Return the wheel's offload archs without features such as ``:xnack-``."""
    return {arch.partition(":")[0] for arch in wheel.archs}


def _lacking(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    assert wheel.label
    lacks = (
        "has no code for" if wheel.label.backend is Backend.CK else "was not checked for"
    )  # Triton can compile for any GPU
    for arch, name in dict(gpu for gpu in list_visible_gpus(machine) if gpu[0] not in _archs(wheel)).items():
        yield f"{lacks} {format_gpu(arch, name)}"


def format_gpu(arch: str, name: str = "") -> str:
    """Return a GPU for a message: its arch, and its product name if the driver or ROCm's list has one."""
    product = name or product_names(arch)
    return f"{arch} ({product})" if product else arch


def list_visible_gpus(machine: Machine) -> list[tuple[str, str]]:
    """Return (offload arch, product name) of each GPU that programs can use.

    This is torch's list if torch sees any GPU. Otherwise it is the driver's list after applying HIP_VISIBLE_DEVICES and
    similar variables, and HSA_OVERRIDE_GFX_VERSION. Source: the ROCm and HIP documentation of these variables.
    """
    names = [*machine.gpu_names, *[""] * len(machine.gpus)]
    products = dict(zip(machine.gpus, names))  # noqa: B905 (its argument is of Python 3.10)
    if machine.torch and machine.torch.archs:
        return [(arch, products.get(arch, "")) for arch in machine.torch.archs]
    seen = [(arch, names[number]) for number, arch in enumerate(machine.gpus)]
    rocr, hip, cuda = (machine.environ.get(name, "") for name in _VISIBLE)
    for chosen in (rocr, hip or cuda):
        places = chosen.split(",")
        if all(
            re.fullmatch(r"\s*\d{1,4}\s*", place) for place in places
        ):  # a UUID hides GPUs too, but the driver's files do not show which
            seen = [seen[int(place)] for place in places if int(place) < len(seen)]
    override = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", machine.environ.get("HSA_OVERRIDE_GFX_VERSION", "").strip())
    if override:
        arch = f"gfx{override[1]}{int(override[2]):x}{int(override[3]):x}"
        return [(arch, f"{name or own}, overridden by HSA_OVERRIDE_GFX_VERSION") for own, name in seen]
    return seen
