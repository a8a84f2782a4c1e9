"""One Python on one machine -> all that the doctor knows of them, as a `Machine`.

The Python is asked in processes of its own, as its user runs it, with user site-packages and PYTHONPATH, only not with
the folder that one happens to be in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelfactory.core.ask import ask
from wheelfactory.core.errors import InputError
from wheelfactory.doctor.hardware import find_container, find_rocm, read_devices, read_gpus, read_user
from wheelfactory.doctor.installed import read_installed
from wheelfactory.doctor.machine import Machine, Python, Torch

IMPORT_SECONDS = 120.0
"""The first import of ROCm's torch reads some gigabytes, from a network's disk sometimes."""

_TELLING = (
    *("HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    *("GPU_DEVICE_ORDINAL", "FLASH_ATTENTION_TRITON_AMD_ENABLE", "PYTORCH_ROCM_ARCH", "GPU_ARCHS"),
    *("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONNOUSERSITE"),
    *("VIRTUAL_ENV", "CONDA_PREFIX"),
)
"""Variables that change what ROCm, torch, flash-attn or Python do."""

_ASK_PYTHON = r"""
import json, os, platform, sys, sysconfig
sys.path[:] = [folder for folder in sys.path if folder]
import importlib.metadata, importlib.util
def version(name):
    try:
        return importlib.metadata.version(name) or ""
    except Exception:
        return None
def glibc():
    try:
        name, _, number = os.confstr("CS_GNU_LIBC_VERSION").partition(" ")
        return number if name == "glibc" else None
    except Exception:
        return None
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False
kind = {"CPython": "cp", "PyPy": "pp"}.get(platform.python_implementation(), "py")
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
print("answer:" + json.dumps({
    "executable": sys.executable,
    "version": platform.python_version(),
    "tag": "%s%d%d%s" % (kind, sys.version_info[0], sys.version_info[1], free),
    "system": platform.system(),
    "machine": platform.machine(),
    "glibc": glibc(),
    "pip": version("pip"),
    "managed": sys.prefix == sys.base_prefix and os.path.exists(marker),
    "torch": version("torch"),
    "torch_found": found("torch"),
    "packages": {name: version(name) for name in sys.argv[1:] if version(name) is not None},
}))
"""


def detect(
    executable: str,
    environ: Mapping[str, str],
    probe: str,
    tritons: Sequence[str],
    root: Path = Path("/"),
    seconds: float = IMPORT_SECONDS,
) -> Machine:
    """Examine a Python, and the machine whose file system is at `root`; each import may take `seconds`.

    `probe` is the program that asks torch (`scripts/probe_toolchain.py`), `tritons` are the distributions that bring
    Triton for ROCm. Raises `InputError` if that Python cannot be run.
    """
    packages = ("triton", *tritons, "einops", "amd-aiter", "rocm-sdk-core", "rocm")
    python, torch, found = ask_python(executable, packages, environ, seconds)
    rocm, rocm_path = find_rocm(root, environ)
    gpus, names = read_gpus(root, rocm_path, environ)
    user, groups = read_user()
    return Machine(
        python,
        torch=None if torch is None else ask_torch(executable, torch, probe, environ, seconds),
        installed=read_installed(executable, environ, seconds),
        packages=found,
        rocm=rocm or found.get("rocm-sdk-core") or found.get("rocm"),  # ROCm as wheels has no folder of its own
        rocm_path=rocm_path,
        gpus=gpus,
        gpu_names=names,
        devices=read_devices(root),
        container=find_container(root, environ),
        user=user,
        groups=groups,
        environ={name: environ[name] for name in _TELLING if name in environ},
    )


def ask_python(
    executable: str, packages: Sequence[str], environ: Mapping[str, str], seconds: float
) -> tuple[Python, str | None, Mapping[str, str]]:
    """What an interpreter is, the version of its torch (empty if it has no metadata), and of those `packages` it has.

    Raises `InputError` if it cannot be asked.
    """
    answer = ask([executable, "-c", _ASK_PYTHON, *packages], environ, seconds)
    said = answer.said
    if answer.trouble or not said:
        which = f"{executable} ({answer.last_line or 'it said nothing'})"
        raise InputError("cannot examine this Python", which, "name another with --python; 3.8 or newer")
    torch = said["torch"] if said["torch"] is not None or not said["torch_found"] else ""
    fields = ("executable", "version", "tag", "system", "machine", "glibc", "pip", "managed")
    return Python(**{name: said[name] for name in fields}), torch, said["packages"]


def ask_torch(executable: str, version: str, probe: str, environ: Mapping[str, str], seconds: float) -> Torch:
    """What the torch of an interpreter says of itself to the program `probe`; `version` is what its metadata says.

    The import and the question for GPUs may each crash or hang; what was said before that is kept.
    """
    answer = ask([executable, "-c", probe, "gpus"], environ, seconds)
    said = answer.said
    if "torch" not in said:
        return Torch(version, error=answer.last_line or "it ended without a word")
    return Torch(
        version or said["torch"],
        hip=said["hip"],
        cuda=said["cuda"],
        cxx11_abi=said["cxx11_abi"],
        sees_gpu=said.get("sees_gpu"),
        archs=tuple(gpu["arch"] for gpu in said.get("gpus", ()) if said["hip"] and gpu["arch"]),
    )
