"""AMD GPUs and ROCm: offload archs, product names, and the GPUs and the ROCm of this machine.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wheelfactory.core.query import query_program
from wheelfactory.core.strict import parse_json

GPU_PRODUCTS = ""
"""The result of `gpu_products` as JSON in doctor.py, which is one file; empty elsewhere, where the table is read."""

GPU_NAMES_FILE = Path(__file__).with_name("gpu_names.csv")
"""The table of GPU names: products, processors, consoles, chips and families, with the source of each row.

Names come from TheRock's table of targets (RELEASES.md, August 2026), LLVM's AMDGPUUsage, amdgpu.ids of libdrm (names
by PCI device ID) with the chip that pci.ids has for that ID, and Linux (kfd_device.c: gfx_target_version by chip).
"""


@dataclass(frozen=True)
class GpuNames:
    """A row of the table of GPU names."""

    archs: tuple[str, ...]
    """Offload archs; several if the names stand for a family."""
    listed: bool
    """Whether tables list these names as the products of the arch; other names only help to find it."""
    names: tuple[str, ...]
    """A name in two rows belongs to GPUs of both."""
    source: str


@cache
def read_gpu_names() -> tuple[GpuNames, ...]:
    """Return the table of GPU names."""
    with GPU_NAMES_FILE.open(encoding="utf-8", newline="") as file:
        return tuple(
            GpuNames(tuple(archs.split()), listed == "yes", tuple(names.split("; ")), source)
            for archs, listed, names, source in list(csv.reader(file))[1:]
        )


@cache
def gpu_products() -> Mapping[str, Sequence[str]]:
    """Return the products of each arch in the table, empty for an arch without a listed one."""
    if GPU_PRODUCTS:
        products: dict[str, list[str]] = parse_json(GPU_PRODUCTS)
        return products
    rows = read_gpu_names()
    archs = dict.fromkeys(arch for row in rows for arch in row.archs)
    listed = {row.archs: row.names for row in rows if row.listed}
    return {arch: listed.get((arch,), ()) for arch in archs}


OVERRIDES = {
    **dict.fromkeys(("gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"), "10.3.0"),
    "gfx1103": "11.0.0",
}
"""The ``HSA_OVERRIDE_GFX_VERSION`` that owners of GPUs without a torch of their own use, so that the runtime loads code
for another GPU of the same generation. AMD supports none of them. Source: reports in ROCm/ROCm#2353 and #2631."""

FAMILIES = {
    "gfx9": "gfx90a, gfx942 and other gfx9 without code of their own (Instinct MI200 and MI300)",
    "gfx950": "gfx950 (Instinct MI350)",
    "gfx11": "gfx11 (Radeon RX 7000, Ryzen AI)",
    "gfx115": "gfx115 (Ryzen AI 300 and Max)",
    "gfx12": "gfx12 (Radeon RX 9000)",
    "gfx125": "gfx125",
}
"""GPU families by the suffix of a kernel's name, in flash-attn from 2025-12 on. A kernel is compiled for all archs, but
an #if in the generated source makes it empty for other families."""

KFD_NODES = "sys/class/kfd/kfd/topology/nodes"
"""The compute nodes that the amdgpu driver lists, below the root of the file system."""


def arch_sort_key(arch: str) -> tuple[int, str]:
    """A sort key that puts gfx90a before gfx1030: minor version and stepping are one character each (LLVM AMDGPU)."""
    return len(arch), arch


def without_features(arch: str) -> str:
    """An arch without features: gfx90a for ``gfx90a:sramecc+:xnack-``."""
    return arch.partition(":")[0]


def product_names(arch: str) -> str:
    """List the products of an offload arch on one line, each brand once; empty for an unknown arch.

    Features such as ``:xnack-`` are ignored.
    """
    names, brand = [], ""
    for name in gpu_products().get(without_features(arch), ()):
        first, _, rest = name.partition(" ")
        names.append(rest if first == brand else name)
        brand = first
    return ", ".join(names)


def find_override_arch(version: str) -> str | None:
    """Return the arch that a value of ``HSA_OVERRIDE_GFX_VERSION`` stands for: gfx1030 for ``10.3.0``; None if bad."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version.strip())
    return f"gfx{match[1]}{int(match[2]):x}{int(match[3]):x}" if match else None


def read_driver_gpus(kfd_nodes: Path) -> Iterator[tuple[str, str]]:
    """Yield the offload arch and the driver's properties of each GPU, in the order in which programs number GPUs.

    The arch is from ``gfx_target_version``: 90402 is gfx942, 90010 is gfx90a.
    """
    for properties in sorted(kfd_nodes.glob("*/properties"), key=lambda path: file_numbers(path.parent.name)):
        text = read_text(properties)  # empty if the device cgroup hides this GPU from the container (kfd_topology.c)
        match = re.search(r"^gfx_target_version (\d+)$", text, re.MULTILINE)
        number = int(match[1]) if match else 0
        # major * 10000 + minor * 100 + stepping, which is one hex digit in the name (Linux, kfd_device.c); 0 is a CPU
        if number:
            yield f"gfx{number // 10000}{number // 100 % 100}{number % 100:x}", text


def rocm_folders(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders that may be ROCm, the preferred one first; some may not exist.

    From ``ROCM_PATH``, ``ROCM_HOME``, the hipcc on PATH, ``/opt/rocm``, and ``/opt/rocm-*`` with the newest first.
    """
    yield from (Path(environ[name]) for name in ("ROCM_PATH", "ROCM_HOME") if environ.get(name))
    if hipcc := shutil.which("hipcc", path=environ.get("PATH", "")):
        # resolved, because /usr/bin/hipcc can link into ROCm; torch locates ROCm the same way
        yield Path(hipcc).resolve().parent.parent
    yield root / "opt/rocm"
    yield from sorted((root / "opt").glob("rocm-*"), key=lambda path: file_numbers(path.name), reverse=True)


def read_text(path: Path) -> str:
    """Read a file of the system; empty if it is missing, or hidden from this process."""
    with suppress(OSError):
        # replaced, because Linux truncates long program names, possibly in mid-character
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def file_numbers(name: str) -> list[int]:
    """The numbers in a file name, as a sort key: renderD129 after renderD128, rocm-7.14.0 after rocm-7.2.0."""
    return [int(number) for number in re.findall(r"\d+", name)]


def rocm_version(folder: Path) -> str | None:
    """``6.2.4`` from ``.info/version``, which reads ``6.2.4-120``, else from ``hipcc --version``; None without both."""
    text = read_text(folder / ".info/version")
    if not text:
        text = query_program([str(folder / "bin/hipcc"), "--version"], os.environ, 60).stdout
        text = text.partition("HIP version:")[2]
    match = re.match(r"\s*(\d+\.\d+(?:\.\d+)?)", text)
    return match[1] if match else None
