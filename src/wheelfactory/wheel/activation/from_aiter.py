"""Selects the Triton kernels of aiter without an environment variable; added by wheelfactory.

flash-attn imports a module of this name, which is compiled in other wheels. This wheel has only the Triton backend,
whose kernels are in aiter. Errors are a RuntimeError: flash-attn ignores an ImportError here and fails later.
"""

import functools
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
    from aiter.ops.triton._triton_kernels.flash_attn_triton_amd import (  # type: ignore[import-not-found]
        interface_v2 as _kernels,
    )
finally:
    if _set_here:
        del os.environ[_TRITON_ONLY]  # aiter reads it at import only; child processes must not inherit it

# flash-attn passes it; without it, as in AMD's 0.1.7, each call with packed sequences would fail
if "num_splits" not in inspect.signature(_kernels.varlen_fwd).parameters:
    raise RuntimeError(_NO_KERNELS)

_OTHER = not hasattr(_kernels, "corrected_by")  # an aiter whose kernels this factory did not correct
_BLOCK = 128
"""The most keys of a block of the backward pass."""


def _refuse_fwd(*arguments):
    return "repeats its mask in every call with dropout_p" if _OTHER and arguments[5] else None


def _refuse_varlen_fwd(*arguments):
    return "repeats its mask in every call with dropout_p" if _OTHER and arguments[12] else None


def _refuse_bwd(*arguments):
    ragged = not arguments[12] and arguments[2].shape[1] % _BLOCK  # blocks of a causal pass mask their keys
    return f"can give NaN for gradients of keys that are no multiple of {_BLOCK}" if _OTHER and ragged else None


def _refuse_varlen_bwd(*arguments):
    return "can give NaN for gradients of packed sequences" if _OTHER and not arguments[17] else None


def _refuse_fwd_kvcache(*arguments):
    if arguments[9] is not None:
        return "ignores cache_leftpad"
    return "can read rows after the end of a cache" if _OTHER else None


def _checked(name):
    compute, refusal = getattr(_kernels, name), globals()[f"_refuse_{name}"]

    @functools.wraps(compute)
    def checked(*arguments, **named):
        reason = refusal(*arguments)
        if reason:
            ours = "" if "leftpad" in reason else "the amd-aiter of the index that has this wheel, or "
            raise NotImplementedError(
                f"the aiter in {_folder} {reason}, so this call could give wrong numbers: use {ours}flash-attention-amd"
            )
        return compute(*arguments, **named)

    return checked


fwd, bwd, fwd_kvcache = _checked("fwd"), _checked("bwd"), _checked("fwd_kvcache")
varlen_fwd, varlen_bwd = _checked("varlen_fwd"), _checked("varlen_bwd")

__all__ = ["bwd", "fwd", "fwd_kvcache", "varlen_bwd", "varlen_fwd"]
