"""What this machine has: ROCm, GPUs, cores, free memory and processes killed for want of it. Decides nothing.

Also used beside the compiler, so it needs the standard library of Python 3.9 alone.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.gpus import KFD_NODES, read_gpu_archs
from wheelfactory.core.query import query_program

MIB = 1 << 20
_V2 = ("memory.max", "memory.current", "memory.events", r"^oom_kill (\d+)$", r"^inactive_file (\d+)$")
_V1 = (
    *("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
    *(r"^oom_kill (\d+)$", r"^total_inactive_file (\d+)$"),
)


@dataclass(frozen=True)
class Group:
    """A memory cgroup that this process is in, with the names its files have (Linux, cgroup v1 and v2)."""

    folder: Path
    limit: str
    usage: str
    events: str
    kills: str
    reclaimable: str

    def free_mib(self) -> int | None:
        """What may still be taken; None without a limit. Files read once can be given back, so do not count."""
        limit, usage = (_text(self.folder / name).strip() for name in (self.limit, self.usage))
        if not (limit.isdigit() and usage.isdigit()):  # "max" is none
            return None
        found = re.search(self.reclaimable, _text(self.folder / "memory.stat"), re.MULTILINE)
        return (int(limit) - int(usage) + (int(found[1]) if found else 0)) // MIB

    def killed(self) -> int:
        """How many processes were killed in it for want of memory."""
        found = re.search(self.kills, _text(self.folder / self.events), re.MULTILINE)
        return int(found[1]) if found else 0


def groups(cgroup: str, root: Path = Path("/sys/fs/cgroup")) -> Iterator[Group]:
    """The memory cgroups of a process, its own first, from the text of its ``/proc/PID/cgroup``."""
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            yield from _chain(root / "memory", path, _V1)
        elif number == "0":
            yield from _chain(root, path, _V2)


def _chain(mount: Path, path: str, names: tuple[str, ...]) -> Iterator[Group]:
    """A group and those above it, whose limits hold for it too; in a container its own is at the mount itself."""
    own = mount / path.lstrip("/")
    for folder in (own, *own.parents):
        if (folder / names[0]).exists():
            yield Group(folder, *names)
        if folder == mount:
            return


def free_mib() -> int:
    """Memory that is free for use now, in MiB, within the limits of the cgroups of this process."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", _text(Path("/proc/meminfo")), re.MULTILINE)
    machine = int(available[1]) // 1024 if available else 0
    limited = [group.free_mib() for group in groups(_text(Path("/proc/self/cgroup")))]
    return max(0, min([machine, *(free for free in limited if free is not None)]))


def out_of_memory_kills() -> int:
    """How many processes were killed for want of memory, in this process's cgroups or on this machine."""
    machine = re.search(r"^oom_kill (\d+)$", _text(Path("/proc/vmstat")), re.MULTILINE)
    in_groups = sum(group.killed() for group in groups(_text(Path("/proc/self/cgroup"))))
    return in_groups + (int(machine[1]) if machine else 0)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")  # Linux cuts the name of a program wherever it is too long
    except OSError:  # a file this kernel does not have
        return ""


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
    hipcc = shutil.which("hipcc", path=environ.get("PATH", ""))
    # the hipcc on PATH may be a link out of /usr/bin; torch looks for ROCm the same way
    on_path = Path(hipcc).resolve().parent.parent if hipcc else None
    for candidate in (environ.get("ROCM_PATH"), environ.get("ROCM_HOME"), on_path, OPT_ROCM):
        if candidate and (Path(candidate) / "bin/hipcc").exists():
            return Path(candidate)
    return None


def _rocm_version(rocm_path: Path) -> str | None:
    """``6.2.4`` from ``.info/version`` (which reads ``6.2.4-120``), else as hipcc says."""
    try:
        text = (rocm_path / ".info/version").read_text(encoding="utf-8")
    except OSError:
        text = query_program([str(rocm_path / "bin/hipcc"), "--version"], os.environ, 60).stdout.partition(
            "HIP version:"
        )[2]
    match = re.match(r"\s*(\d+\.\d+(?:\.\d+)?)", text)
    return match[1] if match else None
