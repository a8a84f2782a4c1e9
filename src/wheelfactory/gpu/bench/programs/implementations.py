"""Load the attention functions to measure, by name. Inputs and outputs are those of `torch_attention`."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from attention_calls import counting_calls, find_backend  # type: ignore[import-not-found]  # of verify/programs
from call_options import CallOptions, NotRunError, Tensor  # type: ignore[import-not-found]  # beside this program
from torch_attention import (  # type: ignore[import-not-found]  # likewise
    flex,
    plain,
    require_flex,
    require_varlen,
    sdpa,
    sdpa_context,
    varlen,
)

Attention = Callable[[Tensor, Tensor, Tensor, CallOptions], Tensor]
"""(queries, keys, values, options) -> output. Keys and values can have fewer heads, in equal groups.

Raises `NotRunError` for options that the implementation does not have.
"""

_SELECTS_TRITON = "FLASH_ATTENTION_TRITON_AMD_ENABLE"

_FORWARD = ("fwd", "varlen_fwd")
"""The backend's functions for the forward pass: of a batch, and of packed sequences."""


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
    context: Callable[[CallOptions], AbstractContextManager[None]] = lambda _options: nullcontext()
    """What a call and its backward pass run in."""


def load_implementation(name: str, device: str, fallback: str) -> LoadedImplementation:
    """Load one of `measure.ATTENTION_IMPLEMENTATIONS` for the device ``cpu`` or ``cuda``.

    `fallback` is the folder of the fallback's sources, used if no fallback is installed.
    Raises `NotRunError` if the implementation is not available, and the import's own error if it is broken.
    """
    if name == "flash-attn":
        return _flash_attn(device)
    if name == "fallback":
        return _fallback(fallback)
    version = str(torch.__version__)
    if name == "sdpa":
        return LoadedImplementation(sdpa, version, "torch", context=sdpa_context)
    if name == "flex":
        require_flex(device)
    elif name == "varlen":
        require_varlen()
    return LoadedImplementation({"flex": flex, "varlen": varlen, "plain": plain}[name], version, "torch")


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
    backend = find_backend(interface)
    kernels = _version("amd-aiter") if backend.fwd.__module__.startswith("aiter.") else None
    return LoadedImplementation(_named(interface), _version("flash-attn"), "installed", backend, kernels)


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
    function = _named(import_module("flash_attention_amd"))
    origin = "installed" if installed else "checkout"
    number = _version("flash-attention-amd") if installed else None
    return LoadedImplementation(function, number, origin)


def _named(module: Any) -> Attention:
    """The functions of flash-attn's interface in `module`. They are given only the options that are set."""
    dense, packed = module.flash_attn_func, getattr(module, "flash_attn_varlen_func", None)
    names = {function: inspect.signature(function).parameters for function in (dense, packed) if function}

    def attend(queries: Tensor, keys: Tensor, values: Tensor, options: CallOptions) -> Tensor:
        function, sequences = dense, tuple[Any, ...]()
        if options.lengths:
            longest = max(options.lengths)
            function, sequences = packed, (options.starts, options.starts, longest, longest)
        if function is None:
            raise NotRunError("this version has no flash_attn_varlen_func")
        arguments = _set_arguments(options)
        missing = [name for name in arguments if name not in names[function]]
        if missing:
            raise NotRunError(f"this version has no {', '.join(missing)}")
        return function(queries, keys, values, *sequences, causal=options.causal, **arguments)

    return attend


def _set_arguments(options: CallOptions) -> dict[str, Any]:
    """The options that are set, beside `causal` and packed sequences, by flash-attn's names."""
    found = {
        "window_size": None if options.window == (-1, -1) else options.window,
        "softcap": options.softcap or None,
        "alibi_slopes": options.slopes,
        "deterministic": options.deterministic or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def find_backend_symbol(implementation: LoadedImplementation, call: Callable[[], Any]) -> str | None:
    """The backend's forward function that `call` reaches, such as ``flash_attn_2_cuda.fwd``; None without a backend."""
    module = implementation.module
    if module is None:
        call()
        return None
    # the timed calls do not go through the counter
    with counting_calls(module, [name for name in _FORWARD if hasattr(module, name)]) as calls:
        call()
    return next(iter(calls), None)


def error_line(error: BaseException) -> str:
    """The type and the last line of an exception."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1]}"


def failed(error: Exception) -> dict[str, Any]:
    """Status and reason of what was not measured because of this error."""
    if isinstance(error, NotRunError):
        return {"status": "not run", "reason": str(error)}
    # torch has an exception of its own for failed allocations on GPUs only
    is_out_of_memory = isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)
    return {"status": "out of memory" if is_out_of_memory else "failed", "reason": error_line(error)}


def run_program(
    measure: Callable[[LoadedImplementation, dict[str, Any], str], Iterator[dict[str, Any]]],
    name: str,
    device: str,
    fallback: str,
    sizes: str,
) -> None:
    """Measure an implementation by its name; print each result of `measure` with those before it, or why none follows.

    The last line counts: what was measured survives a kernel that ends the process.
    """
    config, dropped, report = json.loads(sizes), None, dict[str, Any]()
    if config["foreign_gpu"] and name == "flash-attn":
        dropped = import_module("without_amd_gpu").drop_amd_launch_options()

    def tell(found: dict[str, Any]) -> None:
        report.update(found, dropped=None if dropped is None else sorted(dropped))
        sys.stdout.write(f"\n{json.dumps(report)}\n")
        sys.stdout.flush()

    try:
        implementation = load_implementation(name, device, fallback)
        report.update({field: getattr(implementation, field) for field in ("version", "origin", "aiter")})
        for found in measure(implementation, config, device):
            tell(found)
    except Exception as error:
        tell(failed(error))
