"""The flags of CK kernels, for compiles without setup.py."""

from __future__ import annotations

# as upstream's setup.py of 2.8.3 gives them to hipcc 6.4, without what a kernel does not read. This compiler would
# inline without end (`Compiler.has_runaway_inlining`), so early inlining is off as in any build with it
FLAGS = (
    *("-fPIC", "-DUSE_ROCM=1", "-O3", "-std=c++17", "-fno-gpu-rdc", "-mllvm", "-enable-post-misched=0"),
    *("-mllvm", "-amdgpu-early-inline-all=false", "-mllvm", "-amdgpu-function-calls=false"),
    *("-DCK_TILE_FMHA_FWD_FAST_EXP2=1", "-fgpu-flush-denormals-to-zero", "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=3"),
    *(f"-DCK_ENABLE_{kind}" for kind in ("BF16", "FP16", "FP8", "FP32")),
    *("-DUSE_PROF_API=1", "-D__HIP_PLATFORM_HCC__=1", "-D__HIP_PLATFORM_AMD__=1"),
    *("-Icsrc/composable_kernel/include", "-Icsrc/composable_kernel/library/include"),
    "-Icsrc/composable_kernel/example/ck_tile/01_fmha",
)
"""For every kernel of 2.8.3, in the folder with setup.py."""
