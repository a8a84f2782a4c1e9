"""What matters on a machine besides the wheel: switches, limits, packages that pin torch, and ways without a wheel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wheelfactory.core.support import other_ways
from wheelfactory.doctor.facts import DoctorFacts
from wheelfactory.doctor.fit import may_change_torch
from wheelfactory.doctor.gpu_match import OVERRIDE, GpuSupport, lacks_code, list_visible_gpus
from wheelfactory.doctor.installed_flash_attn import is_fallback
from wheelfactory.doctor.machine import Machine
from wheelfactory.doctor.torch_checks import TRITON_VARIABLE

_AOTRITON = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"
"""Without it, torch's own attention is slow on the archs that AOTriton calls experimental (unslothai/unsloth#8821)."""


def find_notes(machine: Machine, *, changes_torch: bool) -> Iterator[str]:
    """Yield what to know once flash-attn works; `changes_torch`: whether the steps install another torch."""
    archs = [arch for arch, _ in list_visible_gpus(machine)]
    is_radeon = any(arch.startswith(("gfx11", "gfx12")) for arch in archs)
    if is_radeon and machine.environ.get(_AOTRITON) != "1":
        yield f"Tip: `export {_AOTRITON}=1` speeds up torch's own attention on {archs[0]}."
    for_vllm = "vllm" in machine.packages and not is_fallback(machine.flash_attn)
    if is_radeon and for_vllm and machine.environ.get(TRITON_VARIABLE) != "TRUE":
        yield f"vLLM uses it for images only with `export {TRITON_VARIABLE}=TRUE`."
    if "gfx1030" in archs:
        yield "Limit: with Triton 3.4 and later, the causal backward in bf16 of 2.8.3 fails on gfx1030: train in fp16."
    override, listed = machine.environ.get(OVERRIDE), machine.torch.arch_list if machine.torch else ()
    if override and machine.gpus and set(machine.gpus) <= set(listed):
        yield f"{OVERRIDE}={override} is not needed: your torch has code for {', '.join(dict.fromkeys(machine.gpus))}."
    if "flash-attn-4" in machine.packages:
        yield "flash-attn-4 is for NVIDIA (flash_attn.cute); it can stay beside flash-attn."
    if machine.python.pip_extra:
        yield f"--isolated, because {machine.python.pip_extra} adds an index whose torch could replace yours."
    for name, pin in machine.torch_pins.items() if changes_torch else ():
        if not name.startswith("torch"):
            yield f"Caution: {name} {machine.packages.get(name, '')} requires torch{pin}: another torch may break it."


def find_ways(machine: Machine, support: Sequence[GpuSupport], facts: DoctorFacts) -> Iterator[str]:
    """Yield what its owner can do where no wheel fits, one line each."""
    known = {one.arch: one.instead for one in support}
    for arch in dict.fromkeys(arch for arch, _ in list_visible_gpus(machine)):
        ways = known.get(arch, other_ways(arch)) or (other_ways(arch) if lacks_code(machine) else ())
        yield from (f"Instead, for {arch}: {way}" for way in ways)
    torch = machine.torch
    if torch and torch.hip is None and not machine.gpus:
        yield f"Instead, without an AMD GPU: {other_ways('')[0]}"
    have = torch.minor if torch else None
    if torch and have and not may_change_torch(machine) and have not in {known.torch for known in facts.torches[1:]}:
        yield "Instead: keep your torch, and make a new environment with a torch that has a wheel."
