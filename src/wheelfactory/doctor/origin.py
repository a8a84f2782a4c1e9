"""What an installed flash-attn was built for, as far as it tells: in its build record, its label, its requirements."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import InputError
from wheelfactory.core.label import Label
from wheelfactory.doctor.diagnosis import dotted, numbers
from wheelfactory.doctor.machine import Installed

_LABEL_TORCH = re.compile(r"torch(\d+)\.(\d+)", re.ASCII)
"""In the labels of every factory; their ROCm is written in many ways, and read only in ours."""
_TORCH_PIN = re.compile(r"torch\s*\(?\s*(?:==|~=)\s*(\d+)\.(\d+)", re.ASCII)


def shown(installed: Installed) -> str:
    """The installed flash-attn for a sentence."""
    return f"flash-attn {installed.version}"


def is_compiled(installed: Installed) -> bool:
    """Whether it holds compiled kernels, and so is for one torch, ROCm and Python."""
    return installed.extension is not None


def built_for_torch(installed: Installed) -> tuple[tuple[int, int], str] | None:
    """The torch it was built for as (major, minor), and what says so; None if nothing does."""
    torch = _toolchain(installed).get("torch")
    if isinstance(torch, str) and numbers(torch):
        return numbers(torch) or (0, 0), "its build record"
    named = _LABEL_TORCH.search(_local(installed))
    if named:
        return (int(named[1]), int(named[2])), "its label"
    pins = [match for match in map(_TORCH_PIN.match, installed.requires) if match]
    return ((int(pins[0][1]), int(pins[0][2])), "what it requires") if pins else None


def built_for_rocm(installed: Installed) -> tuple[int, int] | None:
    """The ROCm it was built for as (major, minor); None if nothing says so."""
    hip = _toolchain(installed).get("hip")
    if isinstance(hip, str) and numbers(hip):
        return numbers(hip)
    try:
        return Label.parse(_local(installed)).rocm
    except InputError:
        return None


def rocm_of_its_torch(installed: Installed) -> str | None:
    """The ROCm of the torch it was built for, as an index is named: ``6.4``, ``6.2.4``; None if nothing says so."""
    rocm = built_for_rocm(installed)
    try:
        return Cell.parse(str(installed.record.get("cell"))).rocm  # a label has no third number
    except InputError:
        return dotted(rocm) if rocm else None


def built_with_cxx11_abi(installed: Installed) -> bool | None:
    """The C++ ABI it was compiled with; None if nothing says so."""
    abi = _toolchain(installed).get("cxx11_abi")
    return abi if isinstance(abi, bool) else None


def archs_of(installed: Installed) -> tuple[str, ...]:
    """The offload archs it holds compiled code for, without features; empty if that is not known."""
    listed = installed.record.get("offload_archs")
    if isinstance(listed, (list, tuple)) and listed:
        return tuple(str(arch).partition(":")[0] for arch in listed)
    return installed.extension_archs


def names_cuda(installed: Installed) -> bool:
    """Whether its label is one of wheels for CUDA, such as ``cu12torch2.6cxx11abiFALSE``."""
    return re.match(r"cu\d", _local(installed)) is not None


def has_label(installed: Installed) -> bool:
    """Whether its version has a local part; what pip builds from PyPI's sources has none."""
    return bool(_local(installed))


def _local(installed: Installed) -> str:
    return installed.version.partition("+")[2]


def _toolchain(installed: Installed) -> Mapping[str, object]:
    toolchain = installed.record.get("toolchain")
    return toolchain if isinstance(toolchain, Mapping) else {}
