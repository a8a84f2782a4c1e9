"""Find the Python whose torch a user works with, and the GPU it computes on; check that the test mode fits that GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from wheelfactory.core.cell import major_minor
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import TOOLCHAIN_PROBE
from wheelfactory.core.query import QueryResult, query_program
from wheelfactory.gpu.validation_report import Hardware, Software

# limit for importing torch from a cold disk and listing the GPUs
PROBE_TIMEOUT_S = 180.0

OLDEST_PROGRAM_PYTHON = (3, 9)
"""The oldest Python that can run the factory's programs."""

AUTOTUNE_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_AUTOTUNE"

# the option of the test mode; verify/programs/without_amd_gpu.py implements it
_NON_AMD_GPU = "--non-amd-gpu"


@dataclass(frozen=True)
class TorchPython:
    """A Python with torch, and the first GPU that this torch sees."""

    python: Path
    software: Software
    gpu: Hardware = field(default_factory=Hardware)


def find_user_python(environ: Mapping[str, str]) -> str:
    """The interpreter of the active virtual environment, else the first ``python3`` on PATH, else this one."""
    folders = [Path(environ["VIRTUAL_ENV"], "bin")] if environ.get("VIRTUAL_ENV") else []
    folders += [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    found = [folder / "python3" for folder in folders if os.access(folder / "python3", os.X_OK)]
    # the factory's own environment has no ROCm torch, and comes first on PATH when it is activated
    others = [path for path in found if path.parent.parent.resolve() != Path(sys.prefix).resolve()]
    return str(others[0]) if others else sys.executable


def find_torch_python(requested: str | None, environ: Mapping[str, str]) -> TorchPython:
    """Query the Python `requested`, or by default the user's.

    Raises `InputError` if it does not run, is too old, or its torch fails to import or to list the GPUs.
    """
    # isolated (-I), as the factory's programs run: PYTHONPATH and user packages do not count
    python = requested or find_user_python(environ)
    answer = query_program([python, "-I", "-B", str(TOOLCHAIN_PROBE), "gpus", "triton"], environ, PROBE_TIMEOUT_S)
    reported = answer.answers
    if "python" not in reported:
        which = f"{python} ({answer.last_line or 'no output'})"
        raise InputError("cannot run this Python", which, "name another with --python")
    version = reported["python"]
    if major_minor(version) < OLDEST_PROGRAM_PYTHON:
        oldest = ".".join(map(str, OLDEST_PROGRAM_PYTHON))
        hint = f"name Python {oldest} or newer with --python"
        raise InputError("Python is too old", f"{python} is {version}", hint)
    if "torch" not in reported:
        raise InputError("cannot import torch", f"{python} ({answer.last_line})", _hint(answer))
    if answer.error:
        raise InputError("torch cannot list the GPUs", f"{python} ({answer.last_line})", _hint(answer))
    software = Software(python=version, **{name: reported[name] for name in ("torch", "hip", "cuda", "triton")})
    vendor: Literal["amd", "nvidia"] = "amd" if software.hip else "nvidia"
    gpus = [Hardware(vendor=vendor, device=gpu["name"], arch=gpu["arch"]) for gpu in reported.get("gpus", ())[:1]]
    return TorchPython(Path(reported["executable"]), software, *gpus)


def _hint(answer: QueryResult) -> str:
    if "No module named 'torch'" in answer.last_line:
        return "name a Python that has torch with --python; PYTHONPATH and the user site directory are ignored"
    return "repair that torch (`wheelfactory doctor` says how), or name another Python with --python"


def require_non_amd_gpu(python: TorchPython, autotune: str) -> None:
    """Raises `InputError` unless this torch computes on a non-AMD GPU, without autotuning.

    `autotune` is the value of `AUTOTUNE_VARIABLE`; empty if it is not set.
    """
    if python.gpu.vendor is None:
        which = f"torch {python.software.torch} of {python.python} sees none"
        raise InputError("no GPU", which, f"leave {_NON_AMD_GPU} out")
    if python.gpu.vendor == "amd":
        raise InputError("not a non-AMD GPU", python.gpu.device or "AMD", f"leave {_NON_AMD_GPU} out")
    if autotune.lower() in ("1", "true", "yes"):  # as upstream's utils.py reads it
        known = "upstream has no configurations for GPUs of other vendors"
        hint = f"unset {AUTOTUNE_VARIABLE}, or leave --autotune out"
        raise InputError("cannot autotune on a non-AMD GPU", known, hint)
