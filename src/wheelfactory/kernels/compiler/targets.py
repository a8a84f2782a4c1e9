"""What a kernel is compiled for, and what its name says.

A target is an arch (device code) or `HOST` (host code); an object has the code of all its targets. The code for one
target does not depend on the others, so each is compiled and kept by itself, and `fat_binary` puts the object together.

Names such as ``fmha_bwd_d128_bf16_batch_..._gfx9`` and ``fmha_fwd_splitkv_api`` come from the generators of Composable
Kernel (example/ck_tile/01_fmha/codegen/ops/*.py), up to August 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HOST = "host"
"""The target of host code; every other target is an arch."""

ARCH_OPTION = "--offload-arch="

# affects host code only: device code has the same bytes with both values (measured)
_HOST_MACRO = "-D_GLIBCXX_USE_CXX11_ABI="


def split_targets(archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return one list of targets for each arch, and one for host code."""
    return (*((arch,) for arch in archs), (HOST,))


def whole_targets(archs: Sequence[str]) -> tuple[str, ...]:
    """The targets of a whole object, which one ordinary compile makes."""
    return (*archs, HOST)


def compiled_sources(names: Iterable[str], targets: Sequence[str]) -> list[str]:
    """Return the sources that are compiled for these targets, sorted by name."""
    # dispatch sources define no kernel, so their objects have no device code (the samples verify that)
    return sorted(name for name in names if HOST in targets or not is_dispatch(name))


def target_flags(flags: Iterable[str], targets: Sequence[str]) -> list[str]:
    """Return the flags of a kernel that affect the code for these targets, without the archs."""
    dropped = (ARCH_OPTION,) if HOST in targets else (ARCH_OPTION, _HOST_MACRO)
    return [flag for flag in flags if not flag.startswith(dropped)]


def target_options(targets: Sequence[str], archs: Sequence[str], placeholder: str) -> list[str]:
    """Return the options that make hipcc compile for these targets only.

    `archs`: of the whole object; `placeholder` is the file that host code gets for its fat binary.
    """
    if len(targets) > 1:
        return [f"{ARCH_OPTION}{arch}" for arch in targets if arch != HOST]
    if HOST in targets:
        # hipcc asks for an arch, and host code is the same for all of them
        embed = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", placeholder)
        return [f"{ARCH_OPTION}{archs[0]}", "--cuda-host-only", *embed]
    return [f"{ARCH_OPTION}{targets[0]}", "--cuda-device-only", "--no-gpu-bundle-output"]


_NAME = re.compile(
    r"fmha_(?P<operation>[a-z_]+?)_(?:api|d(?P<head_dim>[0-9]{1,4}(?:x[0-9]{1,4})?))"
    r"(?:_(?P<rest>.*?))??(?:_(?P<arch>gfx[0-9a-f]+))?"
)


@dataclass(frozen=True)
class KernelName:
    """The parts of a name that all releases share."""

    operation: str
    """What the kernel computes: ``fwd``, ``bwd_dot_do_o``."""
    head_dim: str
    """``128``, or ``192x128`` if V has another head dimension; empty for an API source."""
    rest: str
    """The rest of the name: the data type, then tile, warps, pipeline, padding and options, joined by ``_``."""
    arch: str
    """The GPU family, such as ``gfx9``; empty for all families (flash-attn up to 2.8.3)."""

    @property
    def is_api(self) -> bool:
        """Whether the source selects a kernel at run time instead of defining one."""
        return not self.head_dim

    @property
    def type(self) -> str:
        """The data type, such as ``bf16``; empty for an API source."""
        return "" if self.is_api else self.rest.partition("_")[0]


def parse_kernel_name(name: str) -> KernelName | None:
    """Parse the name of a source, without folder and extension; None if no generator writes such a name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return KernelName(match["operation"], match["head_dim"] or "", match["rest"] or "", match["arch"] or "")


def is_dispatch(name: str) -> bool:
    """Whether a generated source (name without extension) chooses a kernel for a call, and is no kernel itself."""
    kernel = parse_kernel_name(name)
    return kernel is not None and kernel.is_api
