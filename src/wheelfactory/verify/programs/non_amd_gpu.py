"""The non-AMD GPU test mode: run Triton kernels for AMD GPUs on a GPU of another vendor.

Upstream launches its kernels with options that only Triton's AMD backend supports; NVIDIA's rejects them. They are
hints to AMD's compiler (waves per unit, size of the matrix instruction) and do not change results. Correct results in
this mode show that the kernels are correct, but nothing about AMD GPUs.
"""

from __future__ import annotations

from typing import Any

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
