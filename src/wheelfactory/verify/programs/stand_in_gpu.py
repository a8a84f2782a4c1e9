"""Answer what aiter asks torch.cuda, on a machine without a GPU.

aiter checks devices by assertions too, which Python leaves out with ``-O``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import triton  # type: ignore[import-not-found]

# compute units of an MI300X and of an RX 7900 XTX: aiter sizes its grids by them, and kernels do not depend on that
_UNITS = {"gfx9": 304, "gfx1": 96}


class _Nothing:
    """A stream or an event: it takes every call and does nothing."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        """Take any arguments."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments, **_options: None


def call_once(kernel: Callable[[], object], **_options: object) -> list[float]:
    """Call each configuration of an autotuned kernel instead of measuring it; all seem equally fast."""
    kernel()
    return [0.0, 0.0, 0.0]


def restart_without_assertions() -> None:
    """Start this program again with ``-O``, unless it runs so."""
    if not sys.flags.optimize:
        os.execv(sys.executable, [sys.executable, "-I", "-B", "-O", *sys.argv])  # noqa: S606


def stand_in_gpu(arch: str) -> None:
    """Replace what aiter calls of torch.cuda and of Triton's benchmark; `arch` is the GPU that it gets to see."""
    triton.testing.do_bench_cudagraph = call_once  # what the autotuner measures with where a kernel asks for graphs
    cuda: Any = torch.cuda
    properties = SimpleNamespace(gcnArchName=arch, name=arch, multi_processor_count=_UNITS[arch[:4]])
    cuda.current_device = lambda: 0
    cuda.get_device_properties = lambda *_device: properties
    cuda.is_bf16_supported = lambda *_arguments: True
    cuda.device = cuda.stream = lambda *_arguments: nullcontext()
    cuda.synchronize = lambda *_arguments: None
    cuda.current_stream = cuda.Stream = cuda.Event = _Nothing
