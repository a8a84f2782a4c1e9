"""The resources of this machine: ROCm, GPUs, cores, free memory and out-of-memory kills.

Also runs inside the build container, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wheelfactory.core.gpus import KFD_NODES, read_driver_gpus, read_text, rocm_folders, rocm_version

MIB = 1 << 20
_V2_FILES = ("memory.max", "memory.current", "memory.events", r"^inactive_file (\d+)$")
_V1_FILES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", r"^total_inactive_file (\d+)$")
_OOM_KILL = r"^oom_kill (\d+)$"


@dataclass(frozen=True)
class MemoryCgroup:
    """A memory cgroup and the names of its files, which differ between cgroup v1 and v2."""

    folder: Path
    limit: str
    usage: str
    events: str
    reclaimable_pattern: str

    def free_mib(self) -> int | None:
        """The memory left below the limit, in MiB; None without a limit."""
        limit, usage = (read_text(self.folder / name).strip() for name in (self.limit, self.usage))
        if not (limit.isdigit() and usage.isdigit()):  # v2 writes "max" for no limit
            return None
        found = re.search(self.reclaimable_pattern, read_text(self.folder / "memory.stat"), re.MULTILINE)
        # inactive page cache counts as free: the kernel reclaims it before it kills a process
        return (int(limit) - int(usage) + (int(found[1]) if found else 0)) // MIB

    def out_of_memory_kills(self) -> int:
        """Count the processes in this cgroup that the kernel killed because memory ran out."""
        found = re.search(_OOM_KILL, read_text(self.folder / self.events), re.MULTILINE)
        return int(found[1]) if found else 0


def memory_cgroups(cgroup: str, root: Path = Path("/sys/fs/cgroup")) -> Iterator[MemoryCgroup]:
    """Find the memory cgroups of a process, innermost first, from the text of its ``/proc/PID/cgroup``."""
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            yield from _walk_ancestors(root / "memory", path, _V1_FILES)
        elif number == "0":
            yield from _walk_ancestors(root, path, _V2_FILES)


def _walk_ancestors(mount: Path, path: str, names: tuple[str, ...]) -> Iterator[MemoryCgroup]:
    """A cgroup and its parents, whose limits also apply."""
    own = mount / path.lstrip("/")  # does not exist in a container, which sees its own cgroup at the mount
    for folder in (own, *own.parents):
        if (folder / names[0]).exists():
            yield MemoryCgroup(folder, *names)
        if folder == mount:
            return


def free_mib() -> int:
    """Read the memory available now, in MiB, within the cgroup limits of this process."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB$", read_text(Path("/proc/meminfo")), re.MULTILINE)
    machine = int(available[1]) // 1024 if available else 0
    limited = [group.free_mib() for group in memory_cgroups(read_text(Path("/proc/self/cgroup")))]
    return max(0, min([machine, *(free for free in limited if free is not None)]))


def out_of_memory_kills() -> int:
    """Count the out-of-memory kills in the cgroups of this process and on this machine.

    Only an increase between two calls is meaningful.
    """
    # the same kill can count in several cgroups and again for the machine
    machine = re.search(_OOM_KILL, read_text(Path("/proc/vmstat")), re.MULTILINE)
    in_groups = sum(group.out_of_memory_kills() for group in memory_cgroups(read_text(Path("/proc/self/cgroup"))))
    return in_groups + (int(machine[1]) if machine else 0)


@dataclass(frozen=True)
class Host:
    """The resources that a build can use; `rocm` is None if no ROCm was found."""

    cores: int
    memory_gib: float
    """Available now, within the cgroup limits."""
    rocm: str | None = None
    rocm_path: Path | None = None
    gpu_archs: tuple[str, ...] = ()


def read_host(environ: Mapping[str, str], root: Path = Path("/")) -> Host:
    """Read the resources of this machine, whose file system is at `root`. ROCm counts only with a hipcc."""
    rocm = next((folder for folder in rocm_folders(environ, root) if (folder / "bin/hipcc").exists()), None)
    return Host(
        cores=len(os.sched_getaffinity(0)),  # not cpu_count: a container may use fewer cores than there are
        memory_gib=free_mib() / 1024,
        rocm=rocm_version(rocm) if rocm else None,
        rocm_path=rocm,
        gpu_archs=tuple(dict(read_driver_gpus(root / KFD_NODES))),
    )


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The name of the first processor, such as ``AMD EPYC 9654 96-Core Processor``; None if the kernel gives none."""
    found = re.search(r"^model name\s*: *(.+?) *$", read_text(cpuinfo), re.MULTILINE)
    return found[1] if found else None
