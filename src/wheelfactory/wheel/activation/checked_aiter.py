"""Imports the Triton kernels of aiter without an environment variable, and checks the calls; added by wheelfactory.

A Triton wheel has it as `flash_attn_2_cuda` too, a name that is compiled in other wheels. Errors at import are a
RuntimeError: flash-attn ignores an ImportError there and fails later.
"""

import functools
import importlib.util
import inspect
import os
from pathlib import Path

_BACKEND, _TRITON_ONLY = "FLASH_ATTENTION_TRITON_AMD_ENABLE", "AITER_TRITON_ONLY"

if os.environ.get(_BACKEND, "").strip().lower() in ("false", "0", "no", "off"):
    raise RuntimeError(
        f"{_BACKEND}={os.environ[_BACKEND]} asks for the Composable Kernel backend, which this flash-attn does not "
        "have or could not load: unset the variable, or install the wheel without triton in its label"
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
    from aiter.ops.triton._triton_kernels import flash_attn_triton_amd as _package  # type: ignore[import-not-found]
    from aiter.ops.triton._triton_kernels.flash_attn_triton_amd import interface_v2  # type: ignore[import-not-found]
finally:
    if _set_here:
        del os.environ[_TRITON_ONLY]  # aiter reads it at import only; child processes must not inherit it

# flash-attn passes it; without it, as in AMD's 0.1.7, each call with packed sequences would fail
if "num_splits" not in inspect.signature(interface_v2.varlen_fwd).parameters:
    raise RuntimeError(_NO_KERNELS)

_CORRECTED = hasattr(_package, "CORRECTED")
_BLOCK = 128  # the largest number of keys or queries that the kernels process together


def _refuse(option, why="computes wrongly", instead="the amd-aiter from the index that has this wheel"):
    raise NotImplementedError(
        f"the aiter in {_folder} {why} {option}, so this call would give wrong numbers: use {instead}"
    )


def _check(options):
    """Raise for a call that aiter computes wrongly; `options` are its arguments by name."""
    dtype = str(options["q"].dtype)
    if dtype in ("torch.float32", "torch.float64"):
        why = "multiplies with the precision of xf32, 10 bits, on some GPUs for"
        _refuse(dtype, why, "torch.float16, torch.bfloat16, or scaled_dot_product_attention")
    if options.get("cache_leftpad") is not None:
        _refuse("cache_leftpad", "ignores", "a cache without padding on the left")
    if "k_cache" in options and options["k"] is not None and options["cache_seqlens"] is None:
        raise ValueError("k and v are given without cache_seqlens: pass the lengths of the cache before them")
    if _CORRECTED:
        return
    if "k_cache" in options:
        _refuse("attention with a cache")
    if options["dropout_p"]:
        _refuse("dropout")
    ragged = "cu_seqlens_q" in options or any(options[name].shape[1] % _BLOCK for name in ("q", "k"))
    if "dout" in options and ragged:  # a causal pass has such blocks too: 64 queries with 130 keys
        _refuse(f"gradients of packed sequences, and of lengths that are not a multiple of {_BLOCK}")


def _find_remedy(options):
    """Return what computes a call that aiter refuses by itself, without a remedy; empty if nothing is known to."""
    if options["softcap"]:
        return "flash-attention-amd, or attn_implementation='eager' in transformers"
    if options.get("leftpad_k") is not None or options.get("seqused_k") is not None:
        return "keys without padding"
    if options.get("block_table_") is not None:
        return "the CK wheel, flash-attention-amd, or keys without pages"
    if "dout" in options and max(options["window_size_left"], options["window_size_right"]) >= 0:
        return "the CK wheel, flash-attention-amd, or attn_implementation='sdpa' in transformers"
    return ""


def _open_idle_window(options):
    """Remove a window that hides no key, as the backward pass would refuse it."""
    packed = "cu_seqlens_q" in options
    queries = options["max_seqlen_q"] if packed else options["q"].shape[1]
    keys = options["max_seqlen_k"] if packed else options["k"].shape[1]
    if options["window_size_left"] >= keys - 1:
        options["window_size_left"] = -1
    if options["window_size_right"] >= (0 if options["causal"] else queries - 1):
        options["window_size_right"] = -1


def _checked(compute):
    signature = inspect.signature(compute)

    @functools.wraps(compute)
    def call(*given, **named):
        bound = signature.bind(*given, **named)
        _check(bound.arguments)
        if "dout" in bound.arguments:
            _open_idle_window(bound.arguments)
        try:
            return compute(*bound.args, **bound.kwargs)
        except NotImplementedError as error:
            remedy = _find_remedy(bound.arguments)
            if not remedy:
                raise
            # aiter's second sentence, if any, tells to compute something else
            what = str(error).partition(". ")[0].rstrip(".")
            raise NotImplementedError(f"{what}: use {remedy}") from error

    return call


bwd = _checked(interface_v2.bwd)
fwd = _checked(interface_v2.fwd)
fwd_kvcache = _checked(interface_v2.fwd_kvcache)
varlen_bwd = _checked(interface_v2.varlen_bwd)
varlen_fwd = _checked(interface_v2.varlen_fwd)

__all__ = ["bwd", "fwd", "fwd_kvcache", "varlen_bwd", "varlen_fwd"]
