"""What the rules of the matrix say about a machine, whatever a site publishes, and what else matters there. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from wheelfactory.core.cell import Backend, name_python, public_version
from wheelfactory.core.label import TorchOrigin, rocm_of_torch
from wheelfactory.core.support import Answer, other_ways
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import has_rocm_torch, may_change_torch
from wheelfactory.doctor.gpu_match import OVERRIDE, GpuSupport, lacks_code, uses_nvidia, visible_archs
from wheelfactory.doctor.installed_flash_attn import is_fallback
from wheelfactory.doctor.machine import InstalledTorch, Machine, find_major_minor, format_major_minor
from wheelfactory.doctor.triton_checks import TRITON_VARIABLE


def machine_choices(
    machine: Machine, facts: DoctorFacts, *, backend: Backend | None = None, torch: bool = True
) -> Iterator[Mapping[str, str]]:
    """Yield the machine's values on the axes of the matrix, for each kind of visible GPU; without `torch`, any torch.

    Values that the matrix lacks are as the machine has them. GPUs are left out if none is visible.
    """
    python = find_major_minor(machine.python.version)
    found = {"python": format_major_minor(python)} if python else {}
    if backend:
        found["backend"] = str(backend)
    if torch and machine.torch:
        found.update(_torch_choices(machine.torch, facts))
    yield from [{**found, "gpu": arch} for arch in visible_archs(machine)] or [found]


def _torch_choices(torch: InstalledTorch, facts: DoctorFacts) -> Mapping[str, str]:
    version, rocm = torch.minor, facts.find_rocm(torch)
    named = re.search(r"\+rocm([\d.]*\d)", torch.version)
    choices = {}
    if version:
        choices["torch"] = _value(facts.support.axes["torch"], public_version(torch.version), version)
    if rocm:  # 6.2 and 6.2.4 have indexes of their own, and only the version names the second
        choices["rocm"] = _value(facts.support.axes["rocm"], named[1] if named else "", rocm)
    return choices


def _value(values: tuple[str, ...], exact: str, version: tuple[int, int]) -> str:
    """Return the value of an axis: `exact`, else the first of that major and minor version, else the version."""
    same = [value for value in values if find_major_minor(value) == version]
    return exact if exact in same else next(iter(same), format_major_minor(version))


def find_answer(machine: Machine, facts: DoctorFacts, backend: Backend | None = None) -> Answer:
    """Return the answer for the machine's Python and torch, on the visible GPU that it is best for."""
    # the other GPUs, such as an integrated one, can be hidden
    choices = machine_choices(machine, facts, backend=backend)
    found = [facts.support.find_user_support(one, other_build=is_other_build(machine)).answer for one in choices]
    return min(found, key=list(Answer).index)


def is_other_build(machine: Machine) -> bool:
    """Whether somebody else than PyTorch built the installed torch for ROCm."""
    torch, own = machine.torch, (TorchOrigin.PYTORCH, TorchOrigin.NIGHTLY)
    return torch is not None and torch.hip is not None and torch.origin not in own


def find_torch(machine: Machine, facts: DoctorFacts) -> tuple[str, str] | None:
    """Return the newest torch and its ROCm with which flash-attn works, or else may work, on this Python and a GPU.

    None if there is none.
    """
    if not has_rocm_torch(machine.python):
        return None
    wanted = list(machine_choices(machine, facts, torch=False))
    axes = facts.support.axes
    # CK before Triton, as the doctor prefers wheels
    for answer, backend in product((Answer.WORKS, Answer.MAY_WORK), axes["backend"]):
        for torch, rocm in product(axes["torch"], axes["rocm"]):
            rest = {"torch": torch, "rocm": rocm, "backend": backend}
            if any(facts.support.find_support({**one, **rest}).answer is answer for one in wanted):
                return torch, rocm
    return None


_AOTRITON = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"
"""Without it, torch's own attention is slow on the archs that AOTriton calls experimental (unslothai/unsloth#8821)."""


def find_notes(machine: Machine, facts: DoctorFacts, *, changes_torch: bool) -> Iterator[str]:
    """Yield what to know once flash-attn works; `changes_torch`: whether the steps install another torch."""
    archs = () if uses_nvidia(machine, facts) else visible_archs(machine)
    radeons = [arch for arch in archs if arch.startswith(("gfx11", "gfx120"))]
    if radeons and machine.environ.get(_AOTRITON) != "1" and (changes_torch or not _has_broken_aotriton(machine)):
        yield f"Tip: `export {_AOTRITON}=1` speeds up torch's own attention on {', '.join(radeons)}."
    for_vllm = "vllm" in machine.packages and not is_fallback(machine.flash_attn)
    if radeons and for_vllm and machine.environ.get(TRITON_VARIABLE) != "TRUE":
        yield f"vLLM uses it for images only with `export {TRITON_VARIABLE}=TRUE`."
    if "gfx1030" in archs:
        yield "Limit: with Triton 3.4 and later, the causal backward in bf16 of 2.8.3 fails on gfx1030: train in fp16."
    yield from _python_notes(machine.python.tag, facts.support.axes["python"], changes_torch=changes_torch)
    override, listed = machine.environ.get(OVERRIDE), machine.torch.arch_list if machine.torch else ()
    if override and machine.gpus and set(machine.gpus) <= set(listed):
        yield f"{OVERRIDE}={override} is not needed: your torch has code for {', '.join(dict.fromkeys(machine.gpus))}."
    old = find_major_minor(machine.flash_attn.version) if machine.flash_attn else None
    if old and old < (2, 6):  # the first release of upstream that has code for AMD GPUs
        yield f"{machine.flash_attn} is AMD's old fork, which many programs refuse; upstream has its code since 2.6.3."
    if "flash-attn-4" in machine.packages:
        yield "flash-attn-4 is for NVIDIA (flash_attn.cute); it can stay beside flash-attn."
    if machine.python.pip_extra:
        yield f"--isolated, because {machine.python.pip_extra} adds an index whose torch could replace yours."
    for name, pin in machine.torch_pins.items() if changes_torch else ():
        if not name.startswith("torch"):
            yield f"Caution: {name} {machine.packages.get(name, '')} requires torch{pin}: another torch may break it."


def _python_notes(tag: str, pythons: Sequence[str], *, changes_torch: bool) -> Iterator[str]:
    if tag.endswith("t"):
        yield f"Caution: this factory never tried flash-attn on Python {name_python(tag)}."
    elif changes_torch and name_python(tag) not in pythons:
        yield f"Python {name_python(tag)} gets no newer torch; CPython {pythons[-1]} to {pythons[0]} does."


def _has_broken_aotriton(machine: Machine) -> bool:
    """Whether torch is one of AMD's whose own attention fails on some Radeons (pytorch/pytorch#194498)."""
    torch = machine.torch
    rocm = rocm_of_torch(torch.version, None) if torch else None
    amd = (TorchOrigin.AMD, TorchOrigin.AMD_NIGHTLY)
    return torch is not None and torch.origin in amd and rocm is not None and rocm >= (7, 14)


def find_ways(machine: Machine, support: Sequence[GpuSupport], facts: DoctorFacts) -> Iterator[str]:
    """Yield what its owner can do where no wheel fits, one line each."""
    if uses_nvidia(machine, facts):
        return
    known = {one.arch: one.instead for one in support}
    for arch in visible_archs(machine):
        ways = known.get(arch, other_ways(arch)) or (other_ways(arch) if lacks_code(machine) else ())
        yield from (f"Instead, for {arch}: {way}" for way in ways)
    torch = machine.torch
    if torch and torch.hip is None and not machine.gpus:
        yield f"Instead, without an AMD GPU: {other_ways('')[0]}"
    has_wheel = machine.torch_minor in (None, *(known.torch for known in facts.torches[1:]))
    is_for_others = has_wheel and lacks_code(machine) and find_torch(machine, facts)
    if not may_change_torch(machine) and (is_for_others or not has_wheel):
        yield "Instead: keep your torch, and make a new environment with a torch that has a wheel."
