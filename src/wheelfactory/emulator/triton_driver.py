"""A Triton driver for machines without a GPU: it compiles kernels for an arch, and launches them on the emulator.

It runs in an environment with torch, Triton 3.2 or newer, and numpy; tensors are on the CPU.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import triton  # type: ignore[import-not-found]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]
from triton.compiler.compiler import CompiledKernel  # type: ignore[import-not-found]

from wheelfactory.emulator.code_object import Kernel, read_kernels
from wheelfactory.emulator.dispatch import Buffer, Execution, LoadedKernel
from wheelfactory.emulator.findings import NotRunError

_VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])

# the formats of `struct` for scalar arguments
_FORMATS = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip

_SCRATCH_POINTERS = 2
"""Arguments that Triton may add at the end: memory for tensor descriptors and for profiling, unused here."""


@dataclass(frozen=True)
class Launch:
    """A kernel that ran, with its processor time in seconds."""

    kernel: Kernel
    execution: Execution
    seconds: float


@dataclass(frozen=True)
class _Function:
    """What `load_binary` returns, and a launcher gets: a kernel and its bytes of local memory."""

    loaded: LoadedKernel
    local: int


class EmulatorDriver:
    """A driver for `triton.runtime.driver.set_active`; `launches` has what ran since it was cleared."""

    def __init__(self, arch: str, order: str = "forward") -> None:
        self.arch, self.order = arch, order
        self.launches: list[Launch] = []
        self.launcher_cls = self._make_launcher
        self.utils = self
        self._assembly = ""
        self._watch_kernels()

    def _watch_kernels(self) -> None:
        """Keep the assembly text of the kernel that is loaded next: `load_binary` gets only its machine code."""
        load = CompiledKernel._init_handles

        def load_with_assembly(kernel: Any) -> Any:
            self._assembly = kernel.asm["amdgcn"]
            return load(kernel)

        CompiledKernel._init_handles = load_with_assembly

    def get_current_target(self) -> Any:
        """Return the GPU that Triton compiles for."""
        return GPUTarget("hip", self.arch, 64 if self.arch.startswith("gfx9") else 32)

    def get_current_device(self) -> int:
        """Return the number of the only device."""
        return 0

    def get_current_stream(self, _device: int) -> int:
        """Return the only stream; launches end before they return."""
        return 0

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Return a function that calls each configuration of an autotuned kernel; all seem equally fast."""

        def call_once(kernel: Callable[[], object], **_options: object) -> list[float]:
            kernel()
            return [0.0, 0.0, 0.0]

        return call_once

    def get_device_properties(self, _device: int) -> dict[str, int]:
        """Return what Triton asks about the GPU: bytes of local memory of a work-group, and numbers of units."""
        local = (160 if self.arch == "gfx950" else 64) << 10
        return {"max_shared_mem": local, "multiprocessor_count": 8, "warpSize": self.get_current_target().warp_size}

    def load_binary(self, name: str, code: bytes, local: int, _device: int) -> tuple[Any, ...]:
        """Return module, function, registers, spills, and since Triton 3.4 the maximum threads of a work-group.

        Raises `ValueError` if the code object is for another arch, and `DamagedElfError` if it is none.
        """
        kernel = read_kernels(code)[name]
        if kernel.arch != self.arch:
            raise ValueError(f"{name} is compiled for {kernel.arch}, not for {self.arch}")
        function = _Function(LoadedKernel(kernel, self._assembly), max(0, local - kernel.local))
        found = (function, function, kernel.vector_registers, kernel.vector_spills)
        return (*found, kernel.max_threads) if _VERSION >= (3, 4) else found

    def unload_module(self, _module: object) -> None:
        """Triton 3.8 calls it at exit."""

    def _make_launcher(self, source: Any, _metadata: object) -> Callable[..., None]:
        signature = list(source.signature.items())
        constants = {key[0] if isinstance(key, tuple) and len(key) == 1 else key for key in source.constants}
        kinds = [
            "constexpr" if _VERSION < (3, 4) and (position in constants or key in constants) else kind
            for position, (key, kind) in enumerate(signature)
        ]
        names = [key if isinstance(key, str) else source.fn.arg_names[key] for key, _ in signature]

        def launch(x: int, y: int, z: int, _stream: int, function: _Function, *rest: Any) -> None:
            values = rest[4:]  # after two metadata and two hooks
            if len(values) != len(kinds):
                raise NotRunError(f"{len(values)} arguments for a signature of {len(kinds)}")
            packed, buffers = _pack(names, kinds, values)
            explicit = [each for each in function.loaded.kernel.arguments if not each.kind.startswith("hidden_")]
            if not 0 <= len(explicit) - len(packed) <= _SCRATCH_POINTERS:
                raise NotRunError(f"{len(packed)} of {len(explicit)} arguments")
            packed += [bytes(8)] * (len(explicit) - len(packed))
            self._run(function, (x, y, z), packed, buffers)

        return launch

    def _run(self, function: _Function, grid: tuple[int, int, int], packed: list[bytes], buffers: list[Buffer]) -> None:
        kernel, start = function.loaded.kernel, time.process_time()
        block = (kernel.max_threads, 1, 1)
        execution = function.loaded.launch(grid, block, packed, buffers, dynamic_local=function.local, order=self.order)
        used = replace(kernel, local=kernel.local + function.local)
        self.launches.append(Launch(used, execution, time.process_time() - start))


def _pack(names: list[str], kinds: list[str], values: tuple[Any, ...]) -> tuple[list[bytes], list[Buffer]]:
    """Return the arguments as bytes, and the storages of all tensors as buffers."""
    packed: list[bytes] = []
    buffers: dict[int, Buffer] = {}
    for name, kind, value in zip(names, kinds, values, strict=True):
        if kind == "constexpr":
            continue
        if kind.startswith("*"):
            packed.append(struct.pack("<Q", 0 if value is None else value.data_ptr()))
            storage = value.untyped_storage() if value is not None else None
            if storage and storage.nbytes():
                address, size = storage.data_ptr(), storage.nbytes()
                data = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
                buffers.setdefault(address, Buffer(name, data, address))
        elif kind in _FORMATS:
            packed.append(struct.pack(f"<{_FORMATS[kind]}", value))
        else:
            raise NotRunError(f"argument {name} of type {kind}")
    return packed, list(buffers.values())
