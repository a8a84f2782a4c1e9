"""Load the attention functions to measure, by name. Inputs and outputs are (batch, tokens, heads, head dim)."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

Tensor = Any
Attention = Callable[[Tensor, Tensor, Tensor, bool], Tensor]
"""(queries, keys, values, causal) -> output. Keys and values may have fewer heads, in equal groups."""

_SELECTS_TRITON = "FLASH_ATTENTION_TRITON_AMD_ENABLE"


class NotRunError(Exception):
    """This implementation is not available here; the message says why."""


@dataclass(frozen=True)
class LoadedImplementation:
    """A function to measure, and where it comes from."""

    function: Attention
    version: str | None
    """The version of its distribution; None if unknown."""
    origin: str
    """``installed``, ``checkout``, or ``torch``."""
    module: Any = None
    """The backend module whose functions flash-attn calls; None without a backend."""
    aiter: str | None = None
    """The version of the installed aiter if the functions are in it."""


def load_implementation(name: str, device: str, fallback: str) -> LoadedImplementation:
    """Load ``flash-attn``, ``fallback``, ``sdpa`` or ``plain`` for the device ``cpu`` or ``cuda``.

    `fallback` is the folder of the fallback's sources, used if no fallback is installed.
    Raises `NotRunError` if the implementation is not available, and the import's own error if it is broken.
    """
    if name == "flash-attn":
        return _flash_attn(device)
    if name == "fallback":
        return _fallback(fallback)
    return LoadedImplementation({"sdpa": sdpa, "plain": plain}[name], str(torch.__version__), "torch")


def _flash_attn(device: str) -> LoadedImplementation:
    if find_spec("flash_attn") is None:
        raise NotRunError("not installed")
    if device == "cpu":
        raise NotRunError("needs a GPU")
    _select_as_users_do()
    try:
        interface = import_module("flash_attn.flash_attn_interface")
    except (ImportError, RuntimeError) as error:
        if is_missing_backend(error):
            raise NotRunError(error_line(error)) from None
        raise
    # flash-attn before 2.7 calls the module flash_attn_cuda
    backend = getattr(interface, "flash_attn_gpu", None) or interface.flash_attn_cuda
    kernels = _version("amd-aiter") if backend.fwd.__module__.startswith("aiter.") else None
    function = _named(interface.flash_attn_func)
    return LoadedImplementation(function, _version("flash-attn"), "installed", backend, kernels)


def _select_as_users_do() -> None:
    """Unset the variable that selects Triton where the wheel selects it by a module of its own, as the factory's do."""
    # with TRUE, flash-attn bypasses that module, which prepares the import of an aiter without ROCm modules
    module = find_spec("flash_attn_2_cuda")
    if module and str(module.origin).endswith(".py") and os.environ.get(_SELECTS_TRITON) == "TRUE":
        del os.environ[_SELECTS_TRITON]


def is_missing_backend(error: Exception) -> bool:
    """Whether flash-attn lacks the backend that its variable selects.

    The factory's Triton wheels raise an error that names the variable; other builds have no compiled module at all. A
    compiled module that fails to load is broken, not missing.
    """
    has_no_module = isinstance(error, ModuleNotFoundError) and error.name == "flash_attn_2_cuda"
    return has_no_module or _SELECTS_TRITON in str(error)


def _fallback(folder: str) -> LoadedImplementation:
    installed = find_spec("flash_attention_amd") is not None
    if not installed:
        if not Path(folder, "flash_attention_amd").is_dir():
            raise NotRunError("not installed")
        sys.path.append(folder)
    function = import_module("flash_attention_amd").flash_attn_func
    origin = "installed" if installed else "checkout"
    number = _version("flash-attention-amd") if installed else None
    return LoadedImplementation(_named(function), number, origin)


def _named(function: Callable[..., Tensor]) -> Attention:
    return lambda queries, keys, values, causal: function(queries, keys, values, causal=causal)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def sdpa(queries: Tensor, keys: Tensor, values: Tensor, causal: bool) -> Tensor:
    """torch's own fused attention, with the kernel that torch chooses."""
    heads = [tensor.transpose(1, 2) for tensor in (queries, keys, values)]
    grouped = queries.shape[2] != keys.shape[2]
    return torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=causal, enable_gqa=grouped).transpose(
        1, 2
    )


def plain(queries: Tensor, keys: Tensor, values: Tensor, causal: bool) -> Tensor:
    """Textbook attention: the full matrix of scores, masked, softmax, times the values, all in the input dtype."""
    groups = queries.shape[2] // keys.shape[2]
    queries, keys, values = (tensor.transpose(1, 2) for tensor in (queries, keys, values))
    if groups > 1:
        keys, values = (tensor.repeat_interleave(groups, 1) for tensor in (keys, values))
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ values).transpose(1, 2)


def find_backend_symbol(implementation: LoadedImplementation, call: Callable[[], Any]) -> str | None:
    """The backend's forward function that `call` reaches, such as ``flash_attn_2_cuda.fwd``; None without a backend."""
    if implementation.module is None:
        call()
        return None
    original, called = implementation.module.fwd, []

    def watched(*arguments: Any, **options: Any) -> Any:
        called.append(f"{original.__module__}.{original.__name__}")
        return original(*arguments, **options)

    implementation.module.fwd = watched
    try:
        call()
    finally:
        implementation.module.fwd = original  # the timed calls must not go through the wrapper
    return called[0] if called else None


def error_line(error: BaseException) -> str:
    """The type and the last line of an exception."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1]}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed. torch has its own exception for that on GPUs only."""
    return isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)
