"""Run the kernels of a wheel without an AMD GPU: on another vendor's, or with answers to what aiter asks torch.cuda.

The first is the non-AMD GPU test mode. Upstream launches its kernels with options that only Triton's AMD backend
supports; NVIDIA's rejects them. They are hints to AMD's compiler (waves per unit, size of the matrix instruction) and
do not change results. Correct results in this mode show that the kernels are correct, but nothing about AMD GPUs.

The second is for a machine without a GPU. aiter checks devices by assertions too, so it is imported without them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, SimpleNamespace
from typing import Any

import torch

# the AMD options of flash-attn's launches. Source: Triton's third_party/amd/backend/compiler.py, ``HIPOptions``
AMD_LAUNCH_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim")


def drop_amd_launch_options() -> set[str]:
    """Patch Triton 3.1 to 3.8 to drop `AMD_LAUNCH_OPTIONS` from every launch, unless the kernel has such an argument.

    Return the set of dropped names; it fills while kernels are launched.
    """
    from triton.runtime.jit import JITFunction  # type: ignore[import-not-found]

    dropped: set[str] = set()
    launch = JITFunction.run

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        amd_only = {name for name in AMD_LAUNCH_OPTIONS if name in options and name not in self.arg_names}
        dropped.update(amd_only)
        return launch(self, *arguments, **{name: value for name, value in options.items() if name not in amd_only})

    JITFunction.run = run
    return dropped


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


class _WithoutAssertions(SourceFileLoader):
    """Loads a module as Python does with ``-O``."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        found: CodeType = compile(self.get_data(path), path, "exec", dont_inherit=True, optimize=1)
        return found


class _AiterFinder:
    """Finds the modules of aiter before Python's own finders do."""

    @staticmethod
    def find_spec(name: str, *where: Any) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, *where) if name.partition(".")[0] == "aiter" else None
        if spec and spec.origin and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _WithoutAssertions(name, spec.origin)
        return spec


def stand_in_gpu(arch: str) -> None:
    """Replace what aiter calls of torch.cuda and of Triton's benchmark; `arch` is the GPU that it gets to see.

    aiter must not be imported yet.
    """
    import triton  # type: ignore[import-not-found]  # late: the fallback computes without it

    sys.meta_path.insert(0, _AiterFinder())
    triton.testing.do_bench_cudagraph = call_once  # what the autotuner measures with where a kernel asks for graphs
    cuda: Any = torch.cuda
    properties = SimpleNamespace(gcnArchName=arch, name=arch, multi_processor_count=_UNITS[arch[:4]])
    cuda.current_device = lambda: 0
    cuda.get_device_properties = lambda *_device: properties
    cuda.is_bf16_supported = lambda *_arguments: True
    cuda.device = cuda.stream = lambda *_arguments: nullcontext()
    cuda.synchronize = lambda *_arguments: None
    cuda.current_stream = cuda.Stream = cuda.Event = _Nothing
