"""Rule: where the foreign-GPU test mode can be asked for. The mode itself is verify/programs/foreign_gpu.py."""

from __future__ import annotations

from wheelfactory.core.errors import InputError
from wheelfactory.gpu.torch_python import TorchPython

AUTOTUNE = "FLASH_ATTENTION_TRITON_AMD_AUTOTUNE"

_OPTION = "--foreign-gpu"


def require_foreign_gpu(python: TorchPython) -> None:
    """Raises `InputError` unless that torch computes on a GPU that is not one of AMD."""
    if python.vendor is None:
        raise InputError("no GPU", f"torch {python.torch} of {python.python} sees none", f"leave {_OPTION} out")
    if python.vendor == "amd":
        raise InputError("no foreign GPU", f"{python.device} is one of AMD", f"leave {_OPTION} out")


def require_no_autotune(asked: str) -> None:
    """Raises `InputError` if the Triton backend is to look for its best settings: `asked` is a value of `AUTOTUNE`."""
    if asked.lower() in ("1", "true", "yes"):  # as upstream's utils.py reads it
        known = "upstream has no configurations for GPUs of other vendors"
        raise InputError("cannot autotune on a foreign GPU", known, f"unset {AUTOTUNE}, or leave --autotune out")
