"""The non-AMD GPU test mode: Triton kernels that were written for AMD GPUs, run on the GPU of another vendor.

Upstream's kernels are launched with options that only Triton's AMD backend knows; NVIDIA's refuses the launch for them.
They are hints to AMD's compiler (how many waves share a unit, which matrix instruction is taken), and no part of what
is computed. What is computed in this mode says that the kernels are right, and nothing about an AMD GPU.
"""

from __future__ import annotations

from typing import Any

AMD_LAUNCH_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim")
"""What flash-attn's kernels pass; from Triton's third_party/amd/backend/compiler.py, ``HIPOptions``."""


def drop_amd_launch_options() -> set[str]:
    """Have every launch from now on leave out those of `AMD_LAUNCH_OPTIONS` that are no arguments of the kernel.

    Gives the names that were left out so far; it fills while kernels are launched. For Triton 3.1 to 3.8.
    """
    from triton.runtime.jit import JITFunction  # type: ignore[import-not-found]

    dropped: set[str] = set()
    launch = JITFunction.run

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        foreign = {name for name in AMD_LAUNCH_OPTIONS if name in options and name not in self.arg_names}
        dropped.update(foreign)
        return launch(self, *arguments, **{name: value for name, value in options.items() if name not in foreign})

    JITFunction.run = run
    return dropped
