"""Find what an installed flash-attn was built for, from its build record, label or requirements."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wheelfactory.core.cell import Cell, local_version
from wheelfactory.core.errors import InputError
from wheelfactory.core.gpus import without_features
from wheelfactory.core.label import Label
from wheelfactory.doctor.diagnosis import find_major_minor, format_major_minor
from wheelfactory.doctor.machine import InstalledFlashAttn

# labels of all known builders contain this. They write ROCm in many ways, so only our own labels are read for it
_LABEL_TORCH = re.compile(r"torch(\d+)\.(\d+)", re.ASCII)
_TORCH_PIN = re.compile(r"torch\s*\(?\s*(?:==|~=)\s*(\d+)\.(\d+)", re.ASCII)


def format_flash_attn(installed: InstalledFlashAttn) -> str:
    """Return the installed flash-attn for a message: ``flash-attn 2.8.3+rocm64torch2.9``."""
    return f"flash-attn {installed.version}"


def is_compiled(installed: InstalledFlashAttn) -> bool:
    """Whether it has compiled kernels, and so requires one torch, ROCm and Python."""
    return installed.extension is not None


def find_build_torch(installed: InstalledFlashAttn) -> tuple[tuple[int, int], str] | None:
    """Return the torch it was built for as (major, minor) and the source of that fact; None if unknown."""
    torch = _toolchain(installed).get("torch")
    if isinstance(torch, str) and find_major_minor(torch):
        return find_major_minor(torch) or (0, 0), "build record"
    named = _LABEL_TORCH.search(_local(installed))
    if named:
        return (int(named[1]), int(named[2])), "label"
    pins = [match for match in map(_TORCH_PIN.match, installed.requires) if match]
    return ((int(pins[0][1]), int(pins[0][2])), "requirements") if pins else None


def find_build_rocm(installed: InstalledFlashAttn) -> tuple[int, int] | None:
    """Return the ROCm it was built for as (major, minor); None if unknown."""
    hip = _toolchain(installed).get("hip")
    if isinstance(hip, str) and find_major_minor(hip):
        return find_major_minor(hip)
    try:
        return Label.parse(_local(installed)).rocm
    except InputError:
        return None


def find_build_torch_rocm(installed: InstalledFlashAttn) -> str | None:
    """Return the ROCm of the torch it was built for, as in PyTorch's index: ``6.4``, ``6.2.4``; None if unknown."""
    rocm = find_build_rocm(installed)
    try:
        return Cell.parse(
            str(installed.build_record.get("cell"))
        ).rocm  # the label has two numbers; 6.2.4 has its own index
    except InputError:
        return format_major_minor(rocm) if rocm else None


def find_build_cxx11_abi(installed: InstalledFlashAttn) -> bool | None:
    """Return whether it was compiled with the new C++ ABI; None if unknown."""
    abi = _toolchain(installed).get("cxx11_abi")
    return abi if isinstance(abi, bool) else None


def list_compiled_archs(installed: InstalledFlashAttn) -> tuple[str, ...]:
    """Return the offload archs it has compiled code for, without features; empty if unknown."""
    listed = installed.build_record.get("offload_archs")
    if isinstance(listed, (list, tuple)) and listed:
        return tuple(without_features(str(arch)) for arch in listed)
    return installed.extension_archs


def has_cuda_label(installed: InstalledFlashAttn) -> bool:
    """Whether it has the label of a CUDA wheel, such as ``cu12torch2.6cxx11abiFALSE``."""
    return re.match(r"cu\d", _local(installed)) is not None


def has_label(installed: InstalledFlashAttn) -> bool:
    """Whether its version has a local part. A wheel that pip builds from PyPI's sdist has none."""
    return bool(_local(installed))


def _local(installed: InstalledFlashAttn) -> str:
    return local_version(installed.version)


def _toolchain(installed: InstalledFlashAttn) -> Mapping[str, object]:
    toolchain = installed.build_record.get("toolchain")
    return toolchain if isinstance(toolchain, Mapping) else {}
