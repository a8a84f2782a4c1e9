"""One Python on one machine -> all that the doctor knows of them, as a `Machine`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wheelfactory.doctor.hardware import find_container, find_rocm, read_devices, read_gpus, read_user
from wheelfactory.doctor.installed import read_installed
from wheelfactory.doctor.machine import Machine
from wheelfactory.doctor.probe import ask_python, ask_torch

IMPORT_SECONDS = 120.0
"""The first import of ROCm's torch reads some gigabytes, from a network's disk sometimes."""

_TELLING = (
    *("HSA_OVERRIDE_GFX_VERSION", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    *("GPU_DEVICE_ORDINAL", "FLASH_ATTENTION_TRITON_AMD_ENABLE", "PYTORCH_ROCM_ARCH", "GPU_ARCHS"),
    *("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONNOUSERSITE"),
    *("VIRTUAL_ENV", "CONDA_PREFIX"),
)
"""Variables that change what ROCm, torch, flash-attn or Python do."""


def detect(
    executable: str, environ: Mapping[str, str], root: Path = Path("/"), seconds: float = IMPORT_SECONDS
) -> Machine:
    """Examine a Python, and the machine whose file system is at `root`; each import may take `seconds`.

    Raises `InputError` if that Python cannot be run.
    """
    python, torch, packages = ask_python(executable, environ, seconds)
    rocm, rocm_path = find_rocm(root, environ)
    gpus, names = read_gpus(root, rocm_path, environ)
    user, groups = read_user()
    return Machine(
        python,
        torch=None if torch is None else ask_torch(executable, torch, environ, seconds),
        installed=read_installed(executable, environ, seconds),
        packages=packages,
        rocm=rocm or packages.get("rocm-sdk-core") or packages.get("rocm"),  # ROCm as wheels has no folder of its own
        rocm_path=rocm_path,
        gpus=gpus,
        gpu_names=names,
        devices=read_devices(root),
        container=find_container(root, environ),
        user=user,
        groups=groups,
        environ={name: environ[name] for name in _TELLING if name in environ},
    )
