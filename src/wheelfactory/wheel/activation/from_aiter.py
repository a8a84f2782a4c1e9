"""Selects the Triton kernels of aiter without an environment variable; added by wheelfactory.

flash-attn imports a module of this name, which is compiled in other wheels. This wheel has only the Triton backend,
whose kernels are in aiter. Errors are a RuntimeError: flash-attn ignores an ImportError here and fails later.
"""

import importlib.util
import inspect
import os
from pathlib import Path

_BACKEND, _TRITON_ONLY = "FLASH_ATTENTION_TRITON_AMD_ENABLE", "AITER_TRITON_ONLY"

if os.environ.get(_BACKEND, "").strip().lower() in ("false", "0", "no", "off"):
    raise RuntimeError(
        f"{_BACKEND}={os.environ[_BACKEND]} asks for the Composable Kernel backend, and this flash-attn is the "
        "Triton wheel: unset the variable, or install the wheel without triton in its label"
    )

_spec = importlib.util.find_spec("aiter")
if _spec is None or not _spec.origin:
    raise RuntimeError(
        "this flash-attn takes its Triton kernels from aiter, which is not installed: install amd-aiter from the index "
        "that has this wheel"
    )
_folder = Path(_spec.origin).parent
_NO_KERNELS = (
    f"the aiter in {_folder} has no kernels for this flash-attn: install a newer amd-aiter from AMD, or remove it "
    "and install amd-aiter from the index that has this wheel"
)
if not (_folder / "ops/triton/_triton_kernels/flash_attn_triton_amd").is_dir():
    raise RuntimeError(_NO_KERNELS)

# aiter's setup.py packages hsa with every build but the Triton-only one; an editable install has it beside the package.
# Without the variable such an aiter fails at import; with it, an aiter that has more would lose that. Only files count:
# of a removed aiter, pip leaves empty folders and the modules that it compiled into aiter/jit
_has_more = any(any((_folder.parent / name).rglob("*.co")) for name in ("aiter_meta/hsa", "hsa"))
_set_here = not _has_more and _TRITON_ONLY not in os.environ
if _set_here:
    os.environ[_TRITON_ONLY] = "1"
try:
    from aiter.ops.triton._triton_kernels.flash_attn_triton_amd.interface_v2 import (  # type: ignore[import-not-found]
        bwd,
        fwd,
        fwd_kvcache,
        varlen_bwd,
        varlen_fwd,
    )
finally:
    if _set_here:
        del os.environ[_TRITON_ONLY]  # aiter reads it at import only; child processes must not inherit it

# flash-attn passes it; without it, as in AMD's 0.1.7, each call with packed sequences would fail
if "num_splits" not in inspect.signature(varlen_fwd).parameters:
    raise RuntimeError(_NO_KERNELS)

__all__ = ["bwd", "fwd", "fwd_kvcache", "varlen_bwd", "varlen_fwd"]
