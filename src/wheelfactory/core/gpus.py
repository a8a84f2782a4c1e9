"""AMD GPUs and ROCm: offload archs, product names, and the GPUs and the ROCm of this machine.

Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from wheelfactory.core.query import query_program

# product names by offload arch. Sources:
# - the table of targets in ROCm/TheRock's RELEASES.md, August 2026; for MI308X, RX 6950 XT, RX 7600 XT, Radeon 890M and
#   8060S, public reports by their owners
# - AMD's GPU tables: "System requirements for Windows" of ROCm 6.0.2 (PRO VII, W5500, RX 6700 series) and 7.2 (RX 9070
#   GRE), and LLVM's AMDGPUUsage (RX 7700, RX 7900 GRE, Radeon 860M)
# - all others: amdgpu.ids of libdrm, AMD's names by PCI device ID, with the chip that pci.ids names for that ID. The
#   chip has the arch of its other products: Navi 10 is gfx1010, 14 gfx1012, 22 gfx1031, 23 gfx1032, 24 gfx1034, 31
#   gfx1100, 32 gfx1101, 33 gfx1102, Phoenix gfx1103, Rembrandt gfx1035, Krackan gfx1152 and Krackan 2 gfx1153
# - RX 7400, whose ID pci.ids does not have yet: a public table of IDs by arch
# A name in two lists belongs to GPUs of both archs. Radeon 610M is in none, because one of its two chips has no arch in
# LLVM
PRODUCTS = {
    "gfx900": ("Instinct MI25",),
    "gfx906": ("Instinct MI50", "Instinct MI60", "Radeon VII", "Radeon PRO VII"),
    "gfx908": ("Instinct MI100",),
    "gfx90a": ("Instinct MI210", "Instinct MI250", "Instinct MI250X"),
    "gfx942": ("Instinct MI300A", "Instinct MI300X", "Instinct MI308X", "Instinct MI325X"),
    "gfx950": ("Instinct MI350X", "Instinct MI355X"),
    "gfx1010": ("Radeon RX 5600 XT", "Radeon RX 5700", "Radeon RX 5700 XT", "Radeon PRO W5700"),
    "gfx1012": ("Radeon RX 5500", "Radeon RX 5500 XT", "Radeon PRO W5500"),
    "gfx1030": (
        *("Radeon RX 6800", "Radeon RX 6800 XT", "Radeon RX 6900 XT", "Radeon RX 6950 XT"),
        *("Radeon PRO W6800", "Radeon PRO V620"),
    ),
    "gfx1031": (
        *("Radeon RX 6700", "Radeon RX 6700 XT", "Radeon RX 6750 XT", "Radeon RX 6750 GRE 12GB"),
        *("Radeon RX 6700M", "Radeon RX 6800M"),
    ),
    "gfx1032": (
        *("Radeon RX 6600", "Radeon RX 6600 XT", "Radeon RX 6650 XT", "Radeon RX 6750 GRE 10GB"),
        *("Radeon RX 6600M", "Radeon RX 6700S", "Radeon RX 6800S", "Radeon PRO W6600"),
    ),
    "gfx1034": ("Radeon RX 6400", "Radeon RX 6500 XT", "Radeon PRO W6400"),
    "gfx1035": ("Radeon 660M", "Radeon 680M"),
    "gfx1036": ("Ryzen 7000 (Raphael) graphics",),
    "gfx1100": (
        *("Radeon RX 7900 GRE", "Radeon RX 7900 XT", "Radeon RX 7900 XTX", "Radeon RX 7900M"),
        *("Radeon PRO W7800", "Radeon PRO W7800 48GB", "Radeon PRO W7900"),
    ),
    "gfx1101": (
        *("Radeon RX 7700", "Radeon RX 7700 XT", "Radeon RX 7800 XT", "Radeon RX 7800M"),
        *("Radeon PRO W7700", "Radeon PRO V710"),
    ),
    "gfx1102": (
        *("Radeon RX 7400", "Radeon RX 7600", "Radeon RX 7600 XT", "Radeon RX 7600M", "Radeon RX 7600M XT"),
        *("Radeon RX 7600S", "Radeon RX 7700S", "Radeon PRO W7500", "Radeon PRO W7600"),
    ),
    "gfx1103": ("Radeon 740M", "Radeon 760M", "Radeon 780M (Ryzen 7 7840U)"),
    "gfx1150": ("Ryzen AI 9 HX 370", "Ryzen AI 9 HX 375 (Strix Point)", "Radeon 880M", "Radeon 890M"),
    "gfx1151": ("Ryzen AI Max (Strix Halo)", "Radeon 8040S", "Radeon 8050S", "Radeon 8060S"),
    "gfx1152": ("Ryzen AI 7 350", "Radeon 840M", "Radeon 860M"),
    "gfx1153": ("Radeon 820M", "Radeon 840M"),
    "gfx1200": ("Radeon RX 9060", "Radeon RX 9060 XT"),
    "gfx1201": ("Radeon RX 9070", "Radeon RX 9070 GRE", "Radeon RX 9070 XT", "Radeon AI PRO R9700"),
}

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
    for name in PRODUCTS.get(without_features(arch), ()):
        first, _, rest = name.partition(" ")
        names.append(rest if first == brand else name)
        brand = first
    return ", ".join(names)


def find_override_arch(version: str) -> str | None:
    """Return the arch that a value of ``HSA_OVERRIDE_GFX_VERSION`` stands for: gfx1030 for ``10.3.0``; None if bad."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version.strip())
    return f"gfx{match[1]}{int(match[2]):x}{int(match[3]):x}" if match else None


def read_gpu_archs(kfd_nodes: Path) -> list[str]:
    """Read the offload arch of each GPU from the driver's ``gfx_target_version``: 90402 is gfx942, 90010 is gfx90a."""
    archs = []
    for properties in kfd_node_files(kfd_nodes):
        try:
            text = properties.read_text(encoding="utf-8")
        except OSError:  # EPERM: the device cgroup hides this GPU from the container (Linux, kfd_topology.c)
            continue
        match = re.search(r"^gfx_target_version (\d+)$", text, re.MULTILINE)
        number = int(match[1]) if match else 0
        # major * 10000 + minor * 100 + stepping, which is one hex digit in the name (Linux, kfd_device.c); 0 is a CPU
        if number:
            archs.append(f"gfx{number // 10000}{number // 100 % 100}{number % 100:x}")
    return archs


def kfd_node_files(kfd_nodes: Path) -> list[Path]:
    """Find the properties file of each node, in the order in which programs number GPUs: 10 after 9."""
    return sorted(kfd_nodes.glob("*/properties"), key=lambda path: (len(path.parent.name), path.parent.name))


def rocm_folders(environ: Mapping[str, str], root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders that may be ROCm, the preferred one first; some may not exist.

    From ``ROCM_PATH``, ``ROCM_HOME``, the hipcc on PATH, ``/opt/rocm``, and ``/opt/rocm-*`` with the newest first.
    """
    yield from (Path(environ[name]) for name in ("ROCM_PATH", "ROCM_HOME") if environ.get(name))
    hipcc = shutil.which("hipcc", path=environ.get("PATH", ""))
    if hipcc:
        # resolved, because /usr/bin/hipcc can link into ROCm; torch locates ROCm the same way
        yield Path(hipcc).resolve().parent.parent
    yield root / "opt/rocm"
    yield from sorted((root / "opt").glob("rocm-*"), key=lambda path: file_numbers(path.name), reverse=True)


def file_numbers(name: str) -> list[int]:
    """The numbers in a file name, as a sort key: renderD129 after renderD128, rocm-7.14.0 after rocm-7.2.0."""
    return [int(number) for number in re.findall(r"\d+", name)]


def rocm_version(folder: Path) -> str | None:
    """``6.2.4`` from ``.info/version``, which reads ``6.2.4-120``, else from ``hipcc --version``; None without both."""
    try:
        text = (folder / ".info/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        answer = query_program([str(folder / "bin/hipcc"), "--version"], os.environ, 60)
        text = answer.stdout.partition("HIP version:")[2]
    match = re.match(r"\s*(\d+\.\d+(?:\.\d+)?)", text)
    return match[1] if match else None
