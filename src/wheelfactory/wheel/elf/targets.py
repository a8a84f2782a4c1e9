"""GPU targets: parse the ids in bundles, and the arch numbers in code objects."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TARGET = re.compile(
    r"(?:^|-)(?P<arch>gfx[0-9a-z]+(?:-[0-9]+)*(?:-generic)?|amdgcnspirv)(?P<features>(?::[a-z]+[+-])*)\Z"
)

_NUMBERS = """
    20=gfx600 21=gfx601 3a=gfx602 22=gfx700 23=gfx701 24=gfx702 25=gfx703 26=gfx704 3b=gfx705 28=gfx801 29=gfx802
    2a=gfx803 3c=gfx805 2b=gfx810 2c=gfx900 2d=gfx902 2e=gfx904 2f=gfx906 30=gfx908 31=gfx909 3f=gfx90a 32=gfx90c
    40=gfx940 4b=gfx941 4c=gfx942 4f=gfx950 33=gfx1010 34=gfx1011 35=gfx1012 42=gfx1013 36=gfx1030 37=gfx1031
    38=gfx1032 39=gfx1033 3e=gfx1034 3d=gfx1035 45=gfx1036 41=gfx1100 46=gfx1101 47=gfx1102 44=gfx1103 43=gfx1150
    4a=gfx1151 55=gfx1152 58=gfx1153 48=gfx1200 4e=gfx1201 49=gfx1250 51=gfx9-generic 5f=gfx9-4-generic
    52=gfx10-1-generic 53=gfx10-3-generic 54=gfx11-generic 59=gfx12-generic
"""

# the arch of each EF_AMDGPU_MACH, the lowest byte of e_flags. Source: the output of LLVM 21's llc for each processor;
# for gfx940 and gfx941, which LLVM 21 dropped, LLVM's "User Guide for AMDGPU Backend"
MACHINES = {int(number, 16): arch for number, arch in (item.split("=") for item in _NUMBERS.split())}


@dataclass(frozen=True)
class Target:
    """An offload arch with compiled-in features: ``gfx90a:sramecc+:xnack-``."""

    arch: str
    features: tuple[str, ...] = ()
    """For example ``xnack-``; the code works with any setting of a feature that is not listed."""

    @classmethod
    def from_id(cls, text: str) -> Target | None:
        """Parse a target id or the id of a bundle entry; None for the host."""
        match = _TARGET.search(text)
        if match is None:
            return None
        return cls(match["arch"], tuple(filter(None, match["features"].split(":"))))

    def __str__(self) -> str:
        return ":".join([self.arch, *self.features])


def arch_from_flags(flags: int) -> str:
    """Return the arch in a code object's e_flags."""
    number = flags & 0xFF
    return MACHINES.get(number, f"unknown arch {number:#x}")
