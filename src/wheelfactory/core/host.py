"""What this machine has: ROCm, GPUs, cores and memory. Reads the machine, decides nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.ask import ask
from wheelfactory.core.gpus import KFD_NODES, read_gpu_archs
from wheelfactory.core.memory import free_mib

OPT_ROCM = Path("/opt/rocm")
"""Where AMD's packages put ROCm."""


@dataclass(frozen=True)
class Host:
    """What a build may use; `rocm` is None where no ROCm was found."""

    cores: int
    memory_gib: float
    """Memory that is free for use now, within the limits of its cgroups."""
    rocm: str | None = None
    rocm_path: Path | None = None
    gpu_archs: tuple[str, ...] = ()


def read_host(environ: Mapping[str, str], kfd_nodes: Path = KFD_NODES) -> Host:
    """The machine this runs on; ``ROCM_PATH`` and ``ROCM_HOME`` in `environ` say where ROCm is."""
    rocm_path = find_rocm(environ)
    return Host(
        cores=len(os.sched_getaffinity(0)),
        memory_gib=free_mib() / 1024,
        rocm=_rocm_version(rocm_path) if rocm_path else None,
        rocm_path=rocm_path,
        gpu_archs=tuple(dict.fromkeys(read_gpu_archs(kfd_nodes))),
    )


def find_rocm(environ: Mapping[str, str]) -> Path | None:
    """The ROCm folder with a hipcc in it: as the environment says, as PATH says, or /opt/rocm."""
    candidates = [environ.get("ROCM_PATH"), environ.get("ROCM_HOME"), _rocm_on_path(environ), OPT_ROCM]
    for candidate in candidates:
        if candidate and (Path(candidate) / "bin/hipcc").exists():
            return Path(candidate)
    return None


def _rocm_on_path(environ: Mapping[str, str]) -> Path | None:
    """The folder above a hipcc on PATH, which may be a link out of /usr/bin; torch looks for ROCm the same way."""
    found = shutil.which("hipcc", path=environ.get("PATH", ""))
    return Path(found).resolve().parent.parent if found else None


def _rocm_version(rocm_path: Path) -> str | None:
    """``6.2.4`` from ``.info/version`` (which reads ``6.2.4-120``), else as hipcc says."""
    try:
        text = (rocm_path / ".info/version").read_text(encoding="utf-8")
    except OSError:
        text = ask([str(rocm_path / "bin/hipcc"), "--version"], os.environ, 60).output.partition("HIP version:")[2]
    match = re.match(r"\s*(\d+\.\d+(?:\.\d+)?)", text)
    return match[1] if match else None
