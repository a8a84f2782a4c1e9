"""A name or nothing in, the Python with torch that a user works with out, and the GPU that its torch computes on.

And the rule where the non-AMD GPU test mode can be asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wheelfactory.core.cell import major_minor
from wheelfactory.core.checkout import TOOLCHAIN_PROBE
from wheelfactory.core.errors import InputError
from wheelfactory.core.query import QueryResult, query_program

PROBE_TIMEOUT_S = 180.0
"""For the import of torch and the first question for a GPU, on a machine with a cold disk."""

OLDEST_PROGRAM_PYTHON = (3, 9)
"""The first Python that programs of the factory run in."""

AUTOTUNE_VARIABLE = "FLASH_ATTENTION_TRITON_AMD_AUTOTUNE"

_FOREIGN = "--non-amd-gpu"
"""The option of the test mode, which itself is verify/programs/non_amd_gpu.py."""


@dataclass(frozen=True)
class TorchPython:
    """A Python with torch, and the GPU that torch computes on: the first one that is visible."""

    python: Path
    version: str
    """Of Python: ``3.12``."""
    torch: str
    hip: str | None
    cuda: str | None
    """What torch was built for."""
    triton: str | None
    """The one that it imports; None without one."""
    vendor: Literal["amd", "nvidia"] | None = None
    device: str | None = None
    """The name of the GPU, such as ``AMD Instinct MI300X``."""
    arch: str | None = None
    """``gfx942``, or ``sm_90`` for one of NVIDIA; None without a GPU, as are the two before it."""


def find_user_python(environ: Mapping[str, str]) -> str:
    """The interpreter of the environment that is activated, else the first on PATH; that of this program comes last."""
    folders = [Path(environ["VIRTUAL_ENV"], "bin")] if environ.get("VIRTUAL_ENV") else []
    folders += [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    found = [folder / "python3" for folder in folders if os.access(folder / "python3", os.X_OK)]
    others = [path for path in found if path.parent.parent.resolve() != Path(sys.prefix).resolve()]
    return str(others[0]) if others else sys.executable


def find_torch_python(requested: str | None, environ: Mapping[str, str]) -> TorchPython:
    """The Python `given`, else the user's; asked as programs run in it: isolated, without PYTHONPATH or user packages.

    Raises `InputError` if it cannot be run, is too old, or has no torch that imports and answers for a GPU.
    """
    python = requested or find_user_python(environ)
    answer = query_program([python, "-I", "-B", str(TOOLCHAIN_PROBE), "gpus", "triton"], environ, PROBE_TIMEOUT_S)
    said = answer.answers
    if "python" not in said:
        which = f"{python} ({answer.last_line or 'it said nothing'})"
        raise InputError("cannot run this Python", which, "name another with --python")
    version = said["python"]
    if major_minor(version) < OLDEST_PROGRAM_PYTHON:
        oldest = ".".join(map(str, OLDEST_PROGRAM_PYTHON))
        raise InputError("too old", f"{python} is Python {version}", f"name one from {oldest} on with --python")
    if "torch" not in said:
        raise InputError("no torch that imports", f"{python} ({answer.last_line})", _hint(answer))
    if answer.error:
        raise InputError("torch does not answer for a GPU", f"{python} ({answer.last_line})", _hint(answer))
    found = {name: said[name] for name in ("torch", "hip", "cuda", "triton")}
    gpu = next(iter(said.get("gpus", ())), None)
    if gpu:
        found |= {"vendor": "amd" if said["hip"] else "nvidia", "device": gpu["name"], "arch": gpu["arch"]}
    return TorchPython(Path(said["executable"]), version, **found)


def _hint(answer: QueryResult) -> str:
    if "No module named 'torch'" in answer.last_line:
        return (
            "name a Python that has torch with --python; what only PYTHONPATH or the user's own site-packages hold "
            "does not count"
        )
    return "mend that torch (`wheelfactory doctor` says how), or name another Python with --python"


def require_non_amd_gpu(python: TorchPython) -> None:
    """Raises `InputError` unless that torch computes on a GPU that is not one of AMD."""
    if python.vendor is None:
        raise InputError("no GPU", f"torch {python.torch} of {python.python} sees none", f"leave {_FOREIGN} out")
    if python.vendor == "amd":
        raise InputError("no foreign GPU", f"{python.device} is one of AMD", f"leave {_FOREIGN} out")


def require_no_autotune(value: str) -> None:
    """Raises `InputError` if the Triton backend is to look for its best settings: `asked` is a value of `AUTOTUNE_VARIABLE`."""
    if value.lower() in ("1", "true", "yes"):  # as upstream's utils.py reads it
        known = "upstream has no configurations for GPUs of other vendors"
        raise InputError(
            "cannot autotune on a foreign GPU", known, f"unset {AUTOTUNE_VARIABLE}, or leave --autotune out"
        )
