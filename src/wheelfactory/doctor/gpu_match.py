"""Match the GPUs that programs can use against a wheel: works, may work, does not work. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wheelfactory.core.cell import AITER_NAME, Backend
from wheelfactory.core.gpus import find_override_arch, product_names, without_features
from wheelfactory.core.label import TorchOrigin, is_own_aiter
from wheelfactory.core.support import Answer, Support, SupportTables, name_choice, other_ways
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.machine import InstalledTorch, Machine
from wheelfactory.doctor.published_wheels import PublishedWheel

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
"""Makes ROCm use code for another GPU than the one that is there."""

# ROCm applies the first; HIP then applies the second, or the third if the second is unset
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")

_MOST_NAMES = 3


@dataclass(frozen=True)
class GpuSupport:
    """The answers for one kind of GPU, whatever the Python and torch."""

    arch: str
    answers: Mapping[str, str]
    """For each backend, ``works``, or another answer with its reasons."""
    instead: tuple[str, ...] = ()
    """What its owner can use if neither backend works."""

    def __str__(self) -> str:
        short = (f"{name_choice('backend', name)} {answer.partition(':')[0]}" for name, answer in self.answers.items())
        return f"{self.arch}: {', '.join(short)}"


def judge_gpus(machine: Machine, facts: DoctorFacts) -> tuple[GpuSupport, ...]:
    """Return the answers for each kind of visible GPU that the matrix knows."""
    known = facts.support.axes["gpu"]
    return tuple(_judge_arch(arch, facts.support) for arch in visible_archs(machine) if arch in known)


def _judge_arch(arch: str, tables: SupportTables) -> GpuSupport:
    found = {backend: tables.find_support({"gpu": arch, "backend": backend}) for backend in tables.axes["backend"]}
    fails = all(support.answer is Answer.DOES_NOT_WORK for support in found.values())
    answers = {backend: str(support) for backend, support in found.items()}
    return GpuSupport(arch, answers, other_ways(arch) if fails else ())


def lacks_code(machine: Machine) -> tuple[str, ...]:
    """Return the visible GPUs if the installed torch says that it has code for none of them; otherwise nothing."""
    archs, torch = visible_archs(machine), machine.torch
    return archs if torch and not any(may_have_code(torch, arch) for arch in archs) else ()


def may_have_code(torch: InstalledTorch, arch: str) -> bool:
    # ROCm decides which GPUs can run code for a family or SPIR-V
    is_open = any(one.endswith(("generic", "spirv")) for one in torch.arch_list)
    return arch in torch.arch_list or is_open or not torch.arch_list


def uses_nvidia(machine: Machine, facts: DoctorFacts) -> bool:
    """Whether torch uses an NVIDIA GPU, and no wheel promises an AMD GPU beside it."""
    torch, promised = machine.torch, (facts.support.find_support({"gpu": arch}).answer for arch in machine.gpus)
    return torch is not None and bool(torch.cuda and torch.sees_gpu) and Answer.WORKS not in promised


def gpu_support(wheel: PublishedWheel, arch: str, machine: Machine, facts: DoctorFacts) -> Support:
    """Return whether a wheel works on a GPU: by its archs, the installed torch and the rules of the matrix."""
    torch = _matching_torch(wheel, machine)
    if torch and not may_have_code(torch, arch):
        return Support(Answer.DOES_NOT_WORK, (f"your torch has no code for {arch}",))
    is_own = arch in set(map(without_features, wheel.archs))
    if not is_own and wheel.built.backend is Backend.CK:
        return Support(Answer.DOES_NOT_WORK, (f"has no code for {arch}",))
    cell = wheel.cell
    choices = {"flash-attn": cell.flash_attn} if cell else {}
    # an installed torch knows better for which GPUs it is built; the table has the list of PyTorch's releases only
    if cell and torch and torch.origin is TorchOrigin.PYTORCH and not torch.arch_list:
        choices["rocm"] = torch.version.partition("+rocm")[2]
    elif cell and not torch:
        choices["rocm"] = cell.rocm
    choices = {**choices, "backend": str(wheel.built.backend), "gpu": arch}
    tables = facts.support.for_own_torch() if torch and torch.arch_list else facts.support
    is_known = all(value in tables.axes[axis] for axis, value in choices.items())
    found = tables.find_support(choices) if is_known else None
    if is_own:
        # only a preview, or an arch that nobody tested, is promised less than its wheel says
        return found if found and found.answer is Answer.MAY_WORK else Support(Answer.WORKS)
    return found or Support(Answer.DOES_NOT_WORK, (f"no release of flash-attn is known to support {arch}",))


def _matching_torch(wheel: PublishedWheel, machine: Machine) -> InstalledTorch | None:
    """Return the installed torch for ROCm, if it has the minor version of the wheel."""
    torch = machine.torch
    return torch if torch and torch.hip and torch.minor == wheel.built.torch else None


def gpu_warnings(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Iterator[str]:
    """Yield why a wheel that matches may still not work: for GPUs that it does not promise, and under an override."""
    for arch, _ in dict.fromkeys(list_visible_gpus(machine)):
        support = gpu_support(wheel, arch, machine, facts)
        if support.answer is Answer.MAY_WORK:
            yield str(support)
    torch = _matching_torch(wheel, machine)
    if wheel.torch_symbols and torch and torch.origin is not TorchOrigin.PYTORCH:
        needed = f"all {len(wheel.torch_symbols)} symbols of torch that the wheel needs"
        yield f"may work: your torch is another build than PyTorch's; it defines {needed}"
    aiter_version = machine.packages.get(AITER_NAME)
    if wheel.built.uses_aiter and aiter_version and not is_own_aiter(aiter_version):
        yield f"takes its kernels from the installed {AITER_NAME} {aiter_version}, which stays; checked with ours only"
    override = machine.environ.get(OVERRIDE, "")
    target = find_override_arch(override)
    own = ", ".join(dict.fromkeys(arch for arch in machine.gpus if arch != target))
    if target and own:
        yield f"may work: {OVERRIDE}={override} makes {own} use code for {target}, which AMD does not support"


def hide_gpus_hint(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> str:
    """Return how to hide the GPUs that a wheel does not work on, on a machine that mixes GPU types.

    Empty if the wheel works on all visible GPUs, or on none of them, or if some GPUs are hidden already.
    """
    seen = list_visible_gpus(machine)
    kinds = {arch: gpu_support(wheel, arch, machine, facts).answer for arch, _ in dict.fromkeys(seen)}
    answers = [kinds[arch] for arch, _ in seen]
    # a GPU that a wheel promises is worth hiding one that it only may work on
    good = Answer.WORKS if Answer.WORKS in answers else Answer.MAY_WORK
    covered = [number for number, answer in enumerate(answers) if answer is good]
    if not covered or len(covered) == len(seen) or any(machine.environ.get(name) for name in _VISIBLE):
        return ""  # with a visibility variable set, HIP would count the GPUs from another first one
    others = dict(gpu for number, gpu in enumerate(seen) if number not in covered).items()
    lacks = "has no code for" if wheel.built.backend is Backend.CK else "promises nothing for"
    why = " and ".join(f"{lacks} {format_gpu(arch, name)}" for arch, name in others)
    return f"first run `export HIP_VISIBLE_DEVICES={','.join(map(str, covered))}`: the wheel {why}"


def missing_archs(wheel: PublishedWheel, machine: Machine, facts: DoctorFacts) -> Iterator[str]:
    """Yield each visible GPU that a wheel does not work on, with its product name."""
    for arch, name in dict(list_visible_gpus(machine)).items():
        support = gpu_support(wheel, arch, machine, facts)
        if support.answer is Answer.DOES_NOT_WORK:
            yield from (reason.replace(arch, format_gpu(arch, name), 1) for reason in support.reasons)


def format_gpu(arch: str, name: str = "") -> str:
    """Return a GPU for a message: its arch, and its product name if the driver has one, or some names of the arch."""
    known = product_names(arch).split(", ")
    product = name or ", ".join(known[:_MOST_NAMES]) + " ..." * (len(known) > _MOST_NAMES)
    return f"{arch} ({product})" if product else arch


def visible_archs(machine: Machine) -> tuple[str, ...]:
    """Return the offload arch of each kind of GPU that programs can use."""
    return tuple(dict(list_visible_gpus(machine)))


def list_visible_gpus(machine: Machine) -> list[tuple[str, str]]:
    """Return (offload arch, product name) of each GPU that programs can use.

    This is torch's list if torch sees any GPU. Otherwise it is the driver's list after applying HIP_VISIBLE_DEVICES and
    similar variables, and HSA_OVERRIDE_GFX_VERSION. Source: the ROCm and HIP documentation of these variables. An
    override to another generation counts as unset.
    """
    is_foreign = foreign_override(machine) is not None
    names = [*machine.gpu_names, *[""] * len(machine.gpus)]
    seen = list(zip(machine.gpus, names))  # noqa: B905 (its argument is of Python 3.10)
    if machine.torch and machine.torch.archs and not is_foreign:
        return [(arch, dict(seen).get(arch, "")) for arch in machine.torch.archs]
    rocr, hip, cuda = (machine.environ.get(name, "") for name in _VISIBLE)
    for chosen in (rocr, hip or cuda):
        # a UUID hides GPUs too, but the driver's files do not show which
        if re.fullmatch(r"\s*\d{1,4}\s*(?:,\s*\d{1,4}\s*)*", chosen, re.ASCII):
            seen = [seen[place] for place in map(int, chosen.split(",")) if place < len(seen)]
    arch = find_override_arch(machine.environ.get(OVERRIDE, ""))
    if arch and not is_foreign:
        return [(arch, f"{name or own}, overridden by {OVERRIDE}") for own, name in seen]
    return seen


def foreign_override(machine: Machine) -> str | None:
    """Return the arch of an override that is of another generation than all GPUs, such as gfx1100 for gfx1201.

    It can hang the machine (Comfy-Org/ComfyUI#7400). Also one that torch has no code for, if it has code for the GPUs.
    """
    target = find_override_arch(machine.environ.get(OVERRIDE, "")) or ""
    same = any(arch[:-2] == target[:-2] for arch in machine.gpus)
    listed = machine.torch.arch_list if machine.torch else ()
    is_worse = target not in listed and set(machine.gpus) <= set(listed)
    return target if target and machine.gpus and (is_worse or not same) else None
