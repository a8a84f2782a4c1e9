"""Compile the Triton kernels of the installed flash-attn for a GPU arch, without that GPU, and print a JSON report.

    python -I -B compile_kernels.py gfx942 [PATTERN ...]

It calls the public functions with CPU tensors. They reach the entry points of ``flash_attn_gpu`` as a user's calls do,
so signatures and constants are upstream's own. Triton compiles each launched kernel; its driver is replaced by one that
records code objects and launches nothing. PATTERN skips the backward pass of matching cases, !PATTERN skips the cases.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import triton  # type: ignore[import-not-found]
from triton.runtime import driver  # type: ignore[import-not-found]

sys.path.append(str(Path(__file__).resolve().parent))  # isolated mode leaves out the folder of the program

from stand_in_gpu import StandInDriver, restart_without_assertions, stand_in_gpu  # type: ignore[import-not-found]

ADDRESS_SPACE = 8 << 30
"""Bytes; four times the maximum of any Triton for any arch. A runaway compiler fails instead of filling the memory."""

ELF_HEADER = 64
"""Bytes."""

# the entry points of ``flash_attn_gpu`` for each layout, forward first
ENTRIES = {"dense": ("fwd", "bwd"), "packed": ("varlen_fwd", "varlen_bwd"), "cached": ("fwd_kvcache",)}


@dataclass(frozen=True)
class KernelCase:
    """A call, with its backward pass."""

    layout: str
    dtype: str
    dim: int
    causal: bool

    @property
    def name(self) -> str:
        return f"{self.layout} {self.dim} {'causal' if self.causal else 'full'} {self.dtype}"


CASES = (
    KernelCase("dense", "float16", 128, causal=True),
    KernelCase("dense", "float16", 64, causal=False),
    KernelCase("dense", "bfloat16", 64, causal=True),
    KernelCase("packed", "float16", 64, causal=True),
    KernelCase("packed", "bfloat16", 128, causal=False),
    KernelCase("cached", "float16", 128, causal=True),
    KernelCase("cached", "bfloat16", 64, causal=False),
)
"""Every pair of settings of layout, dtype, head dim and causal; with a backward pass 5 of the 16 combinations do."""


class Utils:
    """The `utils` of a Triton driver; it records code objects instead of loading them."""

    def __init__(self, arch: str) -> None:
        # LDS of a work-group (LLVM, AMDGPUUsage); Triton rejects a kernel that needs more, as on a real GPU
        self._lds = (160 if arch == "gfx950" else 64) << 10
        self.entry = ""
        """The entry point of the current call."""
        self.kernels: list[dict[str, Any]] = []

    def load_binary(self, name: str, code: bytes, shared: int, _device: int) -> tuple[int, ...]:
        header = code[:ELF_HEADER].hex()
        self.kernels.append({"name": name, "entry": self.entry, "header": header, "size": len(code), "lds": shared})
        version = tuple(int(part) for part in triton.__version__.split(".")[:2])
        # module, function, registers, spills, and since Triton 3.4 the maximum threads of a work-group
        return (1, 1, 0, 0, 1024) if version >= (3, 4) else (1, 1, 0, 0)

    def unload_module(self, _module: int) -> None:
        """Triton 3.8 calls it at exit."""

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return {"max_shared_mem": self._lds}


class Driver(StandInDriver):  # type: ignore[misc]
    """A Triton driver that records code objects, with the interface that Triton 3.1 to 3.8 use."""

    def __init__(self, arch: str) -> None:
        super().__init__(arch)
        self.utils = Utils(arch)

    def launcher_cls(self, _source: object, _metadata: object) -> Callable[..., None]:
        return lambda *_arguments: None


def record_entries(flash_attn_gpu: Any, utils: Utils) -> None:
    """Wrap each entry point so that it sets `utils.entry` when it is called."""
    for name in (name for names in ENTRIES.values() for name in names):
        function = getattr(flash_attn_gpu, name)

        def recorded(*arguments: Any, _name: str = name, _function: Any = function, **options: Any) -> Any:
            utils.entry = _name
            return _function(*arguments, **options)

        setattr(flash_attn_gpu, name, recorded)


def call_case(case: KernelCase) -> Any:
    """Call flash-attn with 4 heads in 2 groups; lengths are multiples of a block for dense, but not for packed.

    2.7.4.post1 has no gradients for grouped heads, so there they are not grouped.
    """
    from flash_attn import (  # type: ignore[import-not-found]
        __version__,
        flash_attn_func,
        flash_attn_varlen_func,
        flash_attn_with_kvcache,
    )

    def tensor(*shape: int) -> Any:
        return torch.zeros(*shape, case.dim, dtype=getattr(torch, case.dtype), requires_grad=case.layout != "cached")

    heads = 4 if __version__.startswith("2.7.") else 2
    if case.layout == "dense":
        return flash_attn_func(tensor(2, 256, 4), tensor(2, 256, heads), tensor(2, 256, heads), causal=case.causal)
    if case.layout == "packed":
        starts = torch.tensor([0, 200, 512], dtype=torch.int32)
        sizes = (starts, starts, 312, 312)
        keys, values = tensor(512, heads), tensor(512, heads)
        return flash_attn_varlen_func(tensor(512, 4), keys, values, *sizes, causal=case.causal)
    lengths = torch.tensor([100, 200], dtype=torch.int32)
    cache = (tensor(2, 512, 2), tensor(2, 512, 2))
    return flash_attn_with_kvcache(tensor(2, 1, 4), *cache, cache_seqlens=lengths, causal=case.causal)


def compile_case(case: KernelCase, utils: Utils, *, backward: bool) -> dict[str, Any]:
    """Return a report of the kernels of each entry point, and of the first error."""
    sys.stderr.write(f"{case.name}\n")  # names the case if the compiler crashes the process
    entries = ENTRIES[case.layout][: 2 if backward else 1]
    utils.kernels, utils.entry, error = [], "", None
    try:
        output = call_case(case)
        if len(entries) == 2:
            output.backward(output)
    except Exception as caught:
        lines = str(caught).strip().splitlines() or [""]
        error = f"{utils.entry}: {type(caught).__name__}: {lines[-1]}"
    return {"name": case.name, "entries": entries, "kernels": utils.kernels, "error": error}


def matches(case: KernelCase, patterns: Iterable[str]) -> bool:
    """Return whether the name of a case matches a pattern."""
    return any(fnmatchcase(case.name, pattern) for pattern in patterns)


def main(arch: str, patterns: Sequence[str]) -> None:
    """Compile every case; one failure does not stop the others."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # line info holds paths, so sizes would depend on the folder
    stand_in = Driver(arch)
    driver.set_active(stand_in)
    if find_spec("aiter"):
        restart_without_assertions()
        stand_in_gpu(arch)
    # flash_attn registers its operators for GPUs only, and torch's dispatcher would reject CPU tensors
    custom_op = torch.library.custom_op
    torch.library.custom_op = lambda *names, **options: custom_op(*names, **{**options, "device_types": None})
    from flash_attn.flash_attn_interface import flash_attn_gpu  # type: ignore[import-not-found]

    record_entries(flash_attn_gpu, stand_in.utils)
    skipped = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    cases = [
        compile_case(case, stand_in.utils, backward=not matches(case, patterns))
        for case in CASES
        if not matches(case, skipped)
    ]
    sys.stdout.write(f"\n{json.dumps({'cases': cases})}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
