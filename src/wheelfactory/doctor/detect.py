"""Examine a Python and its machine, and return a `Machine`.

Subprocesses query that Python with its user's environment (user site-packages, PYTHONPATH), but without the working
directory on its path. GPUs, device files, ROCm and the container are read from the file system.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from wheelfactory.core.cell import AITER_NAME
from wheelfactory.core.errors import InputError
from wheelfactory.core.gpus import KFD_NODES, file_numbers, read_driver_gpus, read_text, rocm_folders, rocm_version
from wheelfactory.core.query import Interpreter, query_program
from wheelfactory.doctor.aiter_checks import FORMER_NAME
from wheelfactory.doctor.installed_flash_attn import find_foreign, read_flash_attn
from wheelfactory.doctor.machine import Device, InstalledTorch, Machine, Python, Requirement

# the first import of torch for ROCm reads several GB, sometimes from a network disk
IMPORT_TIMEOUT_S = 120.0

# timeout for rocminfo and rocm_agent_enumerator, which hang if the driver hangs
_TOOL_SECONDS = 30

# variables that affect ROCm, torch, flash-attn or Python
_TELLING = (
    *("HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    *("GPU_DEVICE_ORDINAL", "FLASH_ATTENTION_TRITON_AMD_ENABLE", "AITER_TRITON_ONLY", "PYTORCH_ROCM_ARCH", "GPU_ARCHS"),
    "FLASH_ATTENTION_TRITON_AMD_AUTOTUNE",
    *("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONNOUSERSITE"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "PIP_EXTRA_INDEX_URL"),
)

# distributions that pin their torch, and those that must belong to the installed one
_PINNING = ("vllm", "sglang", "xformers", "torchvision", "torchaudio")


def detect_machine(interpreter: Interpreter, probe: str, tritons: Sequence[str], root: Path = Path("/")) -> Machine:
    """Examine an interpreter and the machine whose file system is at `root`.

    `probe`: source of the program that queries Python and torch (`scripts/probe_toolchain.py`). `tritons`: names of the
    distributions of Triton for ROCm. Raises InputError if the Python cannot run.
    """
    packages = ("triton", *tritons, "einops", AITER_NAME, FORMER_NAME, "rocm-sdk-core", "rocm", "flash-attn-4")
    environ = interpreter.environ
    python, answers = read_python(interpreter, probe, (*packages, *_PINNING))
    found, unmet = answers["packages"], tuple(Requirement(*one) for one in answers["unmet"])
    torch = answers["torch"] if answers["torch"] is not None or not answers["torch_found"] else ""
    rocm, rocm_path = find_rocm(root, environ)
    gpus, names = read_gpus(root, rocm_path, environ)
    user, groups = read_user()
    flash_attn = read_flash_attn(interpreter, probe)
    foreign = find_foreign(interpreter) if flash_attn is None else ("", "")
    return Machine(
        python,
        torch=None if torch is None else replace(read_torch(interpreter, torch, probe), unmet=unmet),
        flash_attn=flash_attn,
        packages=found,
        torch_pins=answers["pins"],
        **dict(zip(("foreign_flash_attn", "foreign_owner"), foreign)),  # noqa: B905 (its argument is of Python 3.10)
        rocm=rocm or found.get("rocm-sdk-core") or found.get("rocm"),  # from wheels, it has no directory under /opt
        rocm_path=rocm_path,
        gpus=gpus,
        gpu_names=names,
        devices=read_devices(root),
        container=find_container(root, environ),
        has_wsl_runtime=any((root / "opt").glob("rocm*/lib/librocdxg.so*")),
        user=user,
        groups=groups,
        environ={name: environ[name] for name in _TELLING if name in environ},
    )


def read_python(interpreter: Interpreter, probe: str, packages: Sequence[str]) -> tuple[Python, Mapping[str, Any]]:
    """Return an interpreter's facts, and its answers about torch and those `packages` that it has.

    Raises InputError if the interpreter cannot run.
    """
    answer = interpreter.query("-c", probe, "python", *packages)
    answers = answer.answers
    if answer.error or not answers:
        which = f"{interpreter.command[0]} ({answer.last_line or 'no output'})"
        raise InputError("cannot examine this Python", which, "choose another one with --python (3.8 or newer)")
    fields = ("executable", "version", "tag", "system", "machine", "glibc", "pip", "externally_managed")
    environ = interpreter.environ
    has_uv = shutil.which("uv", path=environ.get("PATH")) is not None
    python = Python(**{name: answers[name] for name in fields}, has_uv=has_uv, pip_extra=find_extra_index(environ))
    return python, answers


def find_extra_index(environ: Mapping[str, str]) -> str:
    """Return the setting that gives pip a second index: a variable, or a file of its configuration; empty if none."""
    if environ.get("PIP_EXTRA_INDEX_URL"):
        return "PIP_EXTRA_INDEX_URL"
    files = (Path(environ.get("HOME", "/")) / name for name in (".config/pip/pip.conf", ".pip/pip.conf"))
    return next((str(path) for path in files if re.search(r"^\s*extra-index-url", read_text(path), re.MULTILINE)), "")


def read_torch(interpreter: Interpreter, version: str, probe: str) -> InstalledTorch:
    """Query an interpreter's torch with the program `probe`; `version` is the one in torch's metadata.

    The import or the GPU query can crash or hang. Everything that the program printed before that is used.
    """
    answer = interpreter.query("-c", probe, "gpus")
    answers = answer.answers
    if "torch" not in answers:
        return InstalledTorch(version, error=answer.last_line or "the process ended without output")
    same: dict[str, Any] = {name: answers.get(name) for name in ("hip", "cuda", "cxx11_abi", "sees_gpu", "rocm")}
    return InstalledTorch(
        version or answers["torch"],
        **same,
        archs=tuple(gpu["arch"] for gpu in answers.get("gpus", ()) if answers["hip"] and gpu["arch"]),
        arch_list=tuple(answers.get("arch_list", ())) if answers["hip"] else (),
        gpu_error=answer.last_line if "sees_gpu" not in answers else "",
        libraries=answers.get("libraries") or "",
    )


def read_gpus(root: Path, rocm_path: str | None, environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the offload archs of the GPUs and their product names, from the driver or from ROCm's tools.

    An unknown name is empty.
    """
    found = [(arch, _product_name(root, properties)) for arch, properties in read_driver_gpus(root / KFD_NODES)]
    if not found:
        # WSL has no KFD driver, so only the tools list GPUs there. rocminfo prints the name of each agent, then one or
        # two lines below it the marketing name.
        agents = re.compile(r"^\s*Name:\s*(gfx[0-9a-f]+)\s*$(?:(?!^\s*Name:).)*?Marketing Name:([^\n]*)", re.M | re.S)
        found = [(arch, name.strip()) for arch, name in agents.findall(_tool("rocminfo", rocm_path, environ))]
    if not found:
        listed = _tool("rocm_agent_enumerator", rocm_path, environ).split()
        found = [(arch, "") for arch in listed if arch.startswith("gfx") and arch != "gfx000"]  # gfx000 is a CPU
    return tuple(arch for arch, _ in found), tuple(name for _, name in found)


def _product_name(root: Path, properties: str) -> str:
    """Return the driver's product name of the GPU with these properties."""
    minor = re.search(r"^drm_render_minor (\d+)$", properties, re.MULTILINE)
    return read_text(root / f"sys/class/drm/renderD{minor[1] if minor else 0}/device/product_name").strip()


def _tool(name: str, rocm_path: str | None, environ: Mapping[str, str]) -> str:
    """Return the output of one of ROCm's programs; empty if it is missing or fails."""
    search = os.pathsep.join(filter(None, [f"{rocm_path}/bin" if rocm_path else "", environ.get("PATH", "")]))
    program = shutil.which(name, path=search)
    answer = query_program([program], environ, _TOOL_SECONDS) if program else None
    return "" if answer is None or answer.error else answer.stdout


def find_rocm(root: Path, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return ROCm's version and directory, the first one whose version is known; a hipcc is not needed."""
    found = ((rocm_version(folder), str(folder)) for folder in rocm_folders(environ, root))
    return next(((version, folder) for version, folder in found if version), (None, None))


def read_devices(root: Path) -> tuple[Device, ...]:
    """Return ``/dev/kfd``, even if missing, all render nodes, and in WSL, also in a container there, ``/dev/dxg``."""
    nodes = sorted((root / "dev/dri").glob("renderD*"), key=lambda path: file_numbers(path.name))
    if "microsoft" in read_text(root / "proc/sys/kernel/osrelease").lower():
        nodes.append(root / "dev/dxg")
    found = []
    for path in (root / "dev/kfd", *nodes):
        exists = path.exists()
        name, group = f"/{path.relative_to(root).as_posix()}", _group_name(path.stat().st_gid) if exists else ""
        found.append(Device(name, exists, usable=os.access(path, os.R_OK | os.W_OK), group=group))
    return tuple(found)


def find_container(root: Path, environ: Mapping[str, str]) -> str | None:
    """Return the kind of container, from the marker that each engine leaves; ``wsl`` for WSL, None outside."""
    markers = (
        ("kubernetes", environ.get("KUBERNETES_SERVICE_HOST")),
        ("flatpak", environ.get("FLATPAK_ID") or (root / ".flatpak-info").exists()),
        ("snap", environ.get("SNAP")),
        ("toolbox", (root / "run/.toolboxenv").exists()),
        ("apptainer", environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER")),
        ("podman", (root / "run/.containerenv").exists()),
        ("docker", (root / ".dockerenv").exists()),
        ("wsl", "microsoft" in read_text(root / "proc/sys/kernel/osrelease").lower()),
        ("lxc", "lxcfs " in read_text(root / "proc/self/mounts")),
    )
    # systemd's conventions, used by lxc and nspawn
    other = environ.get("container") or read_text(root / "run/systemd/container").strip() or None
    return next((kind for kind, is_marked in markers if is_marked), other)


def read_user() -> tuple[str, tuple[str, ...]]:
    """Return the names of the user and their groups; numbers without a name, as in a container."""
    if os.name != "posix":
        return "", ()
    import pwd  # missing on Windows, where the doctor can still report that no wheel matches

    user = str(os.geteuid())
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid()).pw_name
    return user, tuple(map(_group_name, sorted({os.getegid(), *os.getgroups()})))


def _group_name(number: int) -> str:
    import grp  # missing on Windows

    with suppress(KeyError):
        return grp.getgrgid(number).gr_name
    return str(number)
