"""GPU targets as ids and as numbers in code objects."""

from __future__ import annotations

import pytest

from wheelfactory.wheel.elf.code_object import Target, arch_from_flags

HIP = "hipv4-amdgcn-amd-amdhsa--"


TARGETS: list[tuple[str, Target]] = [
    ("gfx942", Target("gfx942")),
    (f"{HIP}gfx942", Target("gfx942")),
    ("hip-amdgcn-amd-amdhsa-gfx803", Target("gfx803")),
    ("openmp-amdgcn-amd-amdhsa--gfx90a", Target("gfx90a")),
    (f"{HIP}gfx90a:sramecc+:xnack-", Target("gfx90a", ("sramecc+", "xnack-"))),
    (f"{HIP}gfx9-4-generic", Target("gfx9-4-generic")),
    (f"{HIP}gfx11-generic:xnack+", Target("gfx11-generic", ("xnack+",))),
    ("hip-spirv64-amd-amdhsa--amdgcnspirv", Target("amdgcnspirv")),
]


def test_the_target_of_an_id() -> None:
    for text, target in TARGETS:
        assert Target.from_id(text) == target
        assert text.endswith(str(target))


NO_TARGETS: list[str] = [
    *("", "host-x86_64-unknown-linux-gnu-", "gfx", "cuda-nvptx64-nvidia-cuda--sm_80", f"{HIP}gfx942 ", "xgfx942"),
    *(f"{HIP}gfx942\n", f"{HIP}GFX942", f"{HIP}gfx942:xnack", f"{HIP}gfx942:", f"{HIP}gfx942:xnack+x", "gfx٩٤٢"),
]


def test_an_id_that_names_no_target() -> None:
    for text in NO_TARGETS:
        assert Target.from_id(text) is None


@pytest.mark.parametrize(
    ("flags", "arch"),
    [(0x54C, "gfx942"), (0x4E, "gfx1201"), (0x100005F, "gfx9-4-generic"), (0x5FE, "unknown arch 0xfe")],
)
def test_the_arch_of_a_code_object(flags: int, arch: str) -> None:
    assert arch_from_flags(flags) == arch
