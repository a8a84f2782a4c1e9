"""Wheels + a machine -> those that fit it, best first, and for each other one all reasons why it does not; pure.

CK comes before Triton, as it is compiled for the GPU it runs on, and the newest flash-attn first. A wheel fits if it
is built for the torch that is there (major and minor), for the ROCm of that torch, for the Python, for the C++ ABI, for
a glibc that is not newer than the system's, and for every GPU that programs see, or for some to which they can be kept.
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

_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""ROCm goes by the first, then HIP by the second, or else by the third."""


@dataclass(frozen=True)
class NearMiss:
    """A wheel that does not fit, and why."""

    wheel: PublishedWheel
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """What a manifest has for a machine."""

    fitting: tuple[PublishedWheel, ...]
    """Best first."""
    near_misses: tuple[NearMiss, ...]
    """All others, those with the fewest reasons first."""
    with_other_torch: PublishedWheel | None
    """The best wheel that would fit with the torch it is built for, if there is that torch for the Python; else None.

    None too if torch is not what stands in the way.
    """
    fallback: PublishedWheel | None = None
    """Where no wheel fits: the newest fallback that the torch which is there can run."""


def find_fit(
    wheels: Sequence[PublishedWheel],
    machine: Machine,
    facts: DoctorFacts,
    *,
    backend: Backend | None = None,
    flash_attn: str | None = None,
) -> Fit:
    """Judge the wheels of flash-attn, of one backend and one release if they are named."""
    asked = [
        wheel
        for wheel in wheels
        if wheel.project == FLASH_ATTN_PROJECT
        and wheel.label
        and backend in (None, wheel.label.backend)
        and flash_attn in (None, wheel.version.partition("+")[0], wheel.version)
    ]
    asked.sort(key=lambda wheel: (not find_condition(wheel, machine), *_merit(wheel)), reverse=True)
    judged = [(wheel, tuple(_torch_reasons(wheel, machine)), tuple(_other_reasons(wheel, machine))) for wheel in asked]
    fitting = tuple(wheel for wheel, of_torch, others in judged if not of_torch and not others)
    misses = [NearMiss(wheel, of_torch + others) for wheel, of_torch, others in judged if of_torch or others]
    misses.sort(key=lambda miss: len(miss.reasons))  # keeps the best first among equals
    if fitting:
        return Fit(fitting, tuple(misses), None)
    possible = (
        wheel
        for wheel, _, others in judged
        if not others and wheel.cell and _has_torch(wheel.cell, machine.python, facts)
    )
    return Fit((), tuple(misses), next(possible, None), find_fallback(wheels, machine, facts))


def _has_torch(cell: Cell, python: Python, facts: DoctorFacts) -> bool:
    """Whether PyTorch has the torch of a cell for that Python: for CPython on Linux, x86_64 and glibc alone."""
    have, (oldest, newest) = find_major_minor(python.version), facts.find_torch(major_minor(cell.torch)).pythons
    system = (python.system, python.machine) == ("Linux", "x86_64") and python.glibc is not None
    return system and python.tag.startswith("cp") and have is not None and oldest <= have <= newest


def find_missing_dependencies(wheels: Iterable[PublishedWheel], machine: Machine) -> tuple[PublishedWheel, ...]:
    """The newest of each other project that a manifest lists and the machine has not; what is there is kept.

    flash-attn does not need the fallback.
    """
    found: dict[str, PublishedWheel] = {}
    for wheel in sorted(wheels, key=lambda wheel: version_key(wheel.version)):
        if wheel.project in (FLASH_ATTN_PROJECT, FALLBACK_NAME) or wheel.yanked is not None:
            continue
        if wheel.project not in machine.packages:
            found[wheel.project] = wheel
    return tuple(found[project] for project in sorted(found))


def find_fallback(wheels: Iterable[PublishedWheel], machine: Machine, facts: DoctorFacts) -> PublishedWheel | None:
    """The newest fallback of a manifest, if the torch that is there imports and is new enough for it, of any build."""
    torch = machine.torch
    have = find_major_minor(torch.version) if torch and not torch.error else None
    if have is None or have < facts.fallback_torch:
        return None
    found = (wheel for wheel in wheels if wheel.project == FALLBACK_NAME and wheel.yanked is None)
    return max(found, key=lambda wheel: version_key(wheel.version), default=None)


def version_key(version: str) -> tuple[tuple[int, ...], int, str]:
    """Sorts versions as numbers, a pre-release before its release and a post-release after; enough for what is here."""
    public = version.partition("+")[0]
    release = re.match(r"\d+(\.\d+)*", public)
    numbers = tuple(int(part) for part in release[0].split(".")) if release else ()
    later = re.search(r"post(\d+)", public)
    earlier = re.search(r"\d(a|b|rc|\.?dev)\d", public)
    return numbers, int(later[1]) + 1 if later else -1 if earlier else 0, public


def _merit(wheel: PublishedWheel) -> tuple[object, ...]:
    assert wheel.label  # others are not judged
    version = version_key(wheel.version)
    label = wheel.label
    return label.backend is Backend.CK, version, label.torch, label.rocm, wheel.published, wheel.filename


def _torch_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    """What of torch is not as the wheel needs it."""
    assert wheel.label
    torch = machine.torch
    if torch is None:
        yield "no torch"
        return
    built, have = wheel.label.torch, find_major_minor(torch.version)
    if have != built:
        yield f"built for torch {format_major_minor(built)}, you have {format_major_minor(have) if have else torch.version or 'an unknown one'}"
    rocm = find_torch_rocm(torch)
    if rocm is None:
        yield torch_build_text(torch)
    elif rocm != wheel.label.rocm:
        yield f"for ROCm {format_major_minor(wheel.label.rocm)}, your torch is of {format_major_minor(rocm)}"
    if None not in (wheel.cxx11_abi, torch.cxx11_abi) and wheel.cxx11_abi != torch.cxx11_abi:
        wants, has = abi_age(new=wheel.cxx11_abi), abi_age(new=torch.cxx11_abi)
        yield f"built with the {wants} C++ ABI, your torch has the {has} one"


def find_torch_rocm(torch: InstalledTorch) -> tuple[int, int] | None:
    """The ROCm that torch is built for: what it says, or its version if it cannot be asked; None for another build."""
    if torch.hip:
        return find_major_minor(torch.hip)
    named = re.search(r"\+rocm(\d+\.\d+)", torch.version) if torch.error else None
    return find_major_minor(named[1]) if named else None


def torch_build_text(torch: InstalledTorch) -> str:
    """What a torch that is not known to be ROCm's is."""
    local = torch.version.partition("+")[2]
    if torch.cuda or (torch.error and re.match(r"cu\d", local)):
        return "torch is a CUDA build"
    if torch.error and local != "cpu":
        return "torch does not import, so that its ROCm is not known"
    return "torch is a CPU build"


def _other_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    """What else is not as the wheel needs it: the Python, the system, the GPUs; or that it is yanked."""
    yield from _python_reasons(wheel, machine)
    yield from _system_reasons(wheel, machine)
    if not find_condition(wheel, machine):  # else those that it is for can be used alone
        yield from _lacking(wheel, machine)
    if wheel.yanked is not None:
        yield f"yanked: {wheel.yanked or 'no reason is given'}"


def _python_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    python = machine.python
    if wheel.python_tag not in (None, python.tag):
        yield f"for Python {_tag_text(str(wheel.python_tag))}, this is {_tag_text(python.tag)}"
    least = re.search(r">=\s*(\d+)\.(\d+)", wheel.requires_python)
    have = find_major_minor(python.version)
    if least and have and have < (int(least[1]), int(least[2])):
        yield f"needs Python {least[1]}.{least[2]} or newer, this is {format_major_minor(have)}"


def _tag_text(tag: str) -> str:
    """``3.11`` for ``cp311``, ``3.13 free-threaded`` for ``cp313t``, ``PyPy 3.10`` for ``pp310``."""
    match = re.fullmatch(r"(cp|pp)(\d)(\d+)(t?)", tag)
    if match is None:
        return tag
    return f"{'PyPy ' if match[1] == 'pp' else ''}{match[2]}.{match[3]}{' free-threaded' if match[4] else ''}"


def _system_reasons(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    """A wheel without compiled code asks for no system; torch for ROCm does, and says so itself."""
    python = machine.python
    if wheel.machine is None:
        return
    if python.system != "Linux":
        yield f"for Linux, this is {python.system}"
    elif wheel.machine != python.machine:
        yield f"for {wheel.machine}, this is {python.machine}"
    elif wheel.glibc and python.glibc is None:
        yield f"needs glibc {wheel.glibc}, this system has another C library"
    elif wheel.glibc and python.glibc and version_key(python.glibc) < version_key(wheel.glibc):
        yield f"needs glibc {wheel.glibc}, this is {python.glibc}"


def find_condition(wheel: PublishedWheel, machine: Machine) -> str:
    """What must be done on a machine with several kinds of GPU before a program uses a wheel that is for some of them.

    Empty if there is nothing to do, or nothing to be done.
    """
    seen = list_visible_gpus(machine)
    covered = [number for number, (arch, _) in enumerate(seen) if arch in _archs(wheel)]
    if not covered or len(covered) == len(seen) or any(machine.environ.get(name) for name in _VISIBLE):
        return ""  # where some are hidden already, the numbers would not be those that are seen
    why = " and ".join(_lacking(wheel, machine))
    return f"first `export HIP_VISIBLE_DEVICES={','.join(map(str, covered))}`: it {why}"


def _archs(wheel: PublishedWheel) -> set[str]:
    """Its offload archs without features."""
    return {arch.partition(":")[0] for arch in wheel.archs}


def _lacking(wheel: PublishedWheel, machine: Machine) -> Iterator[str]:
    assert wheel.label
    lacks = "has no code for" if wheel.label.backend is Backend.CK else "was not checked for"  # Triton compiles for any
    for arch, name in dict(gpu for gpu in list_visible_gpus(machine) if gpu[0] not in _archs(wheel)).items():
        yield f"{lacks} {format_gpu(arch, name)}"


def format_gpu(arch: str, name: str = "") -> str:
    """A GPU for a sentence: its arch, and the product if the driver's `name` or ROCm's list tells it."""
    told = name or product_names(arch)
    return f"{arch} ({told})" if told else arch


def list_visible_gpus(machine: Machine) -> list[tuple[str, str]]:
    """The offload arch and the name of each GPU that programs see.

    As torch says, if it sees any. Else as the driver does, less what HIP_VISIBLE_DEVICES and its like hide, and as
    what HSA_OVERRIDE_GFX_VERSION says (ROCm's and HIP's documentation of these variables).
    """
    names = [*machine.gpu_names, *[""] * len(machine.gpus)]
    told = dict(zip(machine.gpus, names))  # noqa: B905 (its argument is of Python 3.10)
    if machine.torch and machine.torch.archs:
        return [(arch, told.get(arch, "")) for arch in machine.torch.archs]
    seen = [(arch, names[number]) for number, arch in enumerate(machine.gpus)]
    rocr, hip, cuda = (machine.environ.get(name, "") for name in _VISIBLE)
    for chosen in (rocr, hip or cuda):
        places = chosen.split(",")
        if all(re.fullmatch(r"\s*\d{1,4}\s*", place) for place in places):  # a UUID hides too, but not known what
            seen = [seen[int(place)] for place in places if int(place) < len(seen)]
    override = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", machine.environ.get("HSA_OVERRIDE_GFX_VERSION", "").strip())
    if override:
        arch = f"gfx{override[1]}{int(override[2]):x}{int(override[3]):x}"
        return [(arch, f"{name or own} as HSA_OVERRIDE_GFX_VERSION says") for own, name in seen]
    return seen
