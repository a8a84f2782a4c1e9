"""What a kernel is compiled for: an arch gives its device code, `HOST` its host code, all together the whole object.

Device code for one arch and host code are the same bytes, whichever other archs the object has. So each is compiled and
kept by itself, and `fat_binary` puts the object together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wheelfactory.core.kernel_name import is_dispatch

HOST = "host"
"""The target of host code; every other target is an arch."""

ARCH_OPTION = "--offload-arch="

# changes names of the host library only; device code is the same with both values (measured, byte for byte)
_HOST_MACRO = "-D_GLIBCXX_USE_CXX11_ABI="


def split_targets(archs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return one list of targets for each arch, and one for host code."""
    return (*((arch,) for arch in archs), (HOST,))


def whole_targets(archs: Sequence[str]) -> tuple[str, ...]:
    """The targets of a whole object, which one ordinary compile makes."""
    return (*archs, HOST)


def compiled_sources(names: Iterable[str], targets: Sequence[str]) -> list[str]:
    """Return those of the sources, by name, that are compiled for these targets, sorted."""
    # the sources that choose a kernel define none: their objects have no device code (the samples verify that)
    return sorted(name for name in names if HOST in targets or not is_dispatch(name))


def target_flags(flags: Iterable[str], targets: Sequence[str]) -> list[str]:
    """Return those of a kernel's flags that affect the code for these targets, without the archs."""
    dropped = (ARCH_OPTION,) if HOST in targets else (ARCH_OPTION, _HOST_MACRO)
    return [flag for flag in flags if not flag.startswith(dropped)]


def target_options(targets: Sequence[str], archs: Sequence[str], placeholder: str) -> list[str]:
    """Return the options that make hipcc compile for these targets only.

    `archs` are those of the whole object; `placeholder` is the file that host code gets for its fat binary.
    """
    if len(targets) > 1:
        return [f"{ARCH_OPTION}{arch}" for arch in targets if arch != HOST]
    if HOST in targets:
        # hipcc asks for an arch, and host code is the same for all of them
        embed = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", placeholder)
        return [f"{ARCH_OPTION}{archs[0]}", "--cuda-host-only", *embed]
    return [f"{ARCH_OPTION}{targets[0]}", "--cuda-device-only", "--no-gpu-bundle-output"]
