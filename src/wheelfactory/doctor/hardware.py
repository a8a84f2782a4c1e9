"""The file system of a machine -> its GPUs, their device files, its ROCm, and the container that it may be in."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from wheelfactory.core.ask import ask
from wheelfactory.core.gpus import kfd_node_files, read_gpu_archs
from wheelfactory.doctor.machine import Device

_NODES = "sys/class/kfd/kfd/topology/nodes"
_TOOL_SECONDS = 30
"""For rocminfo and its like, which hang where the driver does."""


def read_gpus(root: Path, rocm_path: str | None, environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The offload archs of the GPUs and their product names, empty where unknown: of the driver, else of ROCm's tools.

    Under WSL there is no such driver, and only the tools know.
    """
    archs = read_gpu_archs(root / _NODES)
    if archs:
        names = list(_driver_names(root))
        return tuple(archs), tuple(names if len(names) == len(archs) else [""] * len(archs))
    # of each agent that rocminfo prints, its name and, a line or two on, its marketing name
    agents = re.compile(r"^\s*Name:\s*(gfx[0-9a-f]+)\s*$(?:(?!^\s*Name:).)*?Marketing Name:([^\n]*)", re.M | re.S)
    found = [(arch, name.strip()) for arch, name in agents.findall(_tool("rocminfo", rocm_path, environ))]
    if not found:
        listed = _tool("rocm_agent_enumerator", rocm_path, environ).split()
        found = [(arch, "") for arch in listed if arch.startswith("gfx") and arch != "gfx000"]  # gfx000: a processor
    return tuple(arch for arch, _ in found), tuple(name for _, name in found)


def _driver_names(root: Path) -> Iterator[str]:
    """Of each node that `read_gpu_archs` takes for a GPU, in its order, what the driver calls the product."""
    for node in kfd_node_files(root / _NODES):
        text = _text_of(node)
        if re.search(r"^gfx_target_version [1-9]", text, re.MULTILINE):
            minor = re.search(r"^drm_render_minor (\d+)$", text, re.MULTILINE)
            device = root / f"sys/class/drm/renderD{minor[1] if minor else 0}/device"
            yield _text_of(device / "product_name").strip()


def _tool(name: str, rocm_path: str | None, environ: Mapping[str, str]) -> str:
    """What one of ROCm's programs prints; nothing if there is none or it does not end well."""
    search = os.pathsep.join(filter(None, [f"{rocm_path}/bin" if rocm_path else "", environ.get("PATH", "")]))
    program = shutil.which(name, path=search)
    answer = ask([program], environ, _TOOL_SECONDS) if program else None
    return "" if answer is None or answer.trouble else answer.output


def find_rocm(root: Path, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The version and the folder of ROCm: as the environment says, ``/opt/rocm``, or the newest ``/opt/rocm-*``."""
    named = [Path(environ[name]) for name in ("ROCM_PATH", "ROCM_HOME") if environ.get(name)]
    versioned = sorted((root / "opt").glob("rocm-*"), key=lambda path: _numbers(path.name), reverse=True)
    for folder in [*named, root / "opt/rocm", *versioned]:
        match = re.match(r"\s*(\d+\.\d+(?:\.\d+)?)", _text_of(folder / ".info/version"))
        if match:
            return match[1], str(folder)
    return None, None


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def read_devices(root: Path) -> tuple[Device, ...]:
    """``/dev/kfd``, and the render nodes that there are."""
    nodes = sorted((root / "dev/dri").glob("renderD*"), key=lambda path: _numbers(path.name))
    found = []
    for path in (root / "dev/kfd", *nodes):
        exists, group = path.exists(), ""
        if exists:
            try:
                group = path.group()
            except KeyError:
                group = str(path.stat().st_gid)
        name = f"/{path.relative_to(root).as_posix()}"
        found.append(Device(name, exists, usable=os.access(path, os.R_OK | os.W_OK), group=group))
    return tuple(found)


def find_container(root: Path, environ: Mapping[str, str]) -> str | None:
    """What the machine is inside of, by the marks that each leaves; ``wsl`` for Windows' Linux."""
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER"):
        return "apptainer"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    if "microsoft" in _text_of(root / "proc/sys/kernel/osrelease").lower():
        return "wsl"
    return environ.get("container") or None  # systemd's mark, which lxc and nspawn set too


def read_user() -> tuple[str, tuple[str, ...]]:
    """The name of the user and of the groups; numbers where there are no names, as in a container."""
    if os.name != "posix":
        return "", ()
    import grp  # these two are not on Windows, where the doctor says at least that it is no place for ROCm's torch
    import pwd

    user, groups = str(os.geteuid()), []
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid()).pw_name
    for number in sorted({os.getegid(), *os.getgroups()}):
        try:
            groups.append(grp.getgrgid(number).gr_name)
        except KeyError:
            groups.append(str(number))
    return user, tuple(groups)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not there, or kept from this container
        return ""
