"""What the flags of a compile command do, and who gives them.

Sources: flash-attn's setup.py (2.6.3 to 2.8.3.post2 and main of 2026), torch's cpp_extension (2.5 to 2.13), clang's
and hipcc's manuals, Composable Kernel's headers. A flag that is not here is called unknown, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

FLASH_ATTN, TORCH, FACTORY = "flash-attn", "torch", "wheelfactory"
"""Who gives a flag."""

Meaning = tuple[str, str]
"""What it does and why, and who gives it; empty for a flag that anybody may give."""

_HIP = "says that HIP is for AMD"

FLAGS: Mapping[str, Meaning] = {
    "-c": ("compile only, do not link", TORCH),
    "-fPIC": ("code that a shared library can hold: Python loads the extension as one", TORCH),
    "-O3": ("optimize as far as it goes; most of the compile time is here", FLASH_ATTN),
    "-O2": ("optimize", ""),
    "-O1": ("optimize a little", ""),
    "-O0": ("do not optimize: quick to compile, kernels far too slow to use", ""),
    "-std=c++17": ("C++17, which Composable Kernel is written in up to flash-attn 2.8.3", FLASH_ATTN),
    "-std=c++20": ("C++20, which flash-attn after 2025-12 and torch from 2.14 on ask for", FLASH_ATTN),
    "-fgpu-flush-denormals-to-zero": ("numbers near zero become zero on the GPU: faster", FLASH_ATTN),
    "-fno-offload-uniform-block": (
        "workgroups may have an uneven size; HIP after 5.7.23302 needs it said, as CK's own build does",
        FLASH_ATTN,
    ),
    "-fno-gpu-rdc": ("each object's device code is whole: linked here, not at the end", TORCH),
    "-fgpu-rdc": ("device code is linked at the end, across objects", ""),
    "-ferror-limit=0": ("print every error", ""),
    "-w": ("print no warnings", ""),
    "-g": ("debug information: objects become many times larger", ""),
    "-DNDEBUG": ("no asserts", ""),
    "--offload-compress": ("pack the device code: a smaller library, unpacked when it is loaded", ""),
    "-x hip": ("the source is HIP, whatever its file is called", FACTORY),
    "-MD": ("write which headers were read", TORCH),
    "-MMD": ("write which headers were read, those of the system left out", TORCH),
    "-fvisibility=hidden": ("symbols are private unless they are exported", ""),
    "-fbracket-depth=1024": ("C++ fold expressions may nest deeper: CK's templates do", FLASH_ATTN),
    "-mllvm --lsr-drop-solution=1": (
        "loop strength reduction may drop a costly solution; saves registers (HIP after 5.5)",
        FLASH_ATTN,
    ),
    "-mllvm -lsr-drop-solution=1": ("loop strength reduction may drop a costly solution; saves registers", FLASH_ATTN),
    "-mllvm -enable-post-misched=0": (
        "no second instruction scheduling after registers are given: CK orders its loops itself (HIP after 6.1.40090)",
        FLASH_ATTN,
    ),
    "-mllvm -amdgpu-early-inline-all=true": (
        "inline every function before optimizing (HIP after 6.2.41132); with the flag below it makes LLVM from 18 on "
        "run away, AMD's builds of it excepted",
        FLASH_ATTN,
    ),
    "-mllvm -amdgpu-early-inline-all=false": ("takes early inlining back: this compiler runs away on it", FACTORY),
    "-mllvm -amdgpu-function-calls=false": (
        "no calls on the GPU: all is inlined in the end (HIP after 6.2.41132)",
        FLASH_ATTN,
    ),
    "-mllvm -amdgpu-coerce-illegal-types=1": (
        "types the GPU does not have go through registers as ones it has (AMD's compiler of HIP 6.2 only)",
        FLASH_ATTN,
    ),
    "-D__HIP_PLATFORM_AMD__": (_HIP, TORCH),
    "-D__HIP_PLATFORM_HCC__": (f"{_HIP}: the name before ROCm 6", FLASH_ATTN),
    "-DUSE_ROCM": ("torch's headers take their ROCm side", TORCH),
    "-DHIPBLAS_V2": ("torch's headers use hipBLAS's second interface", TORCH),
    "-DCUDA_HAS_FP16": ("torch has float16", TORCH),
    "-D__HIP_NO_HALF_OPERATORS__": ("float16 has torch's operators, not HIP's", TORCH),
    "-D__HIP_NO_HALF_CONVERSIONS__": ("float16 has torch's conversions, not HIP's", TORCH),
    "-DHIP_ENABLE_WARP_SYNC_BUILTINS": ("HIP's __*_sync intrinsics; no CK kernel uses them", TORCH),
    "-DHIPIFY_V2": ("the sources went through torch's second hipify (torch from 2.11 on)", FLASH_ATTN),
    "-DTORCH_API_INCLUDE_EXTENSION_H": ("this is a torch extension", TORCH),
    "-DTORCH_EXTENSION_NAME": ("the name of the Python module; upstream calls it ..._cuda on AMD too", TORCH),
    "-DPYBIND11_COMPILER_TYPE": ("pybind11's ABI: torch and the extension must agree", TORCH),
    "-DPYBIND11_STDLIB": ("pybind11's ABI: torch and the extension must agree", TORCH),
    "-DPYBIND11_BUILD_ABI": ("pybind11's ABI: torch and the extension must agree", TORCH),
    "-D_GLIBCXX_USE_CXX11_ABI": ("std::string's ABI: 0 is torch up to 2.5 or so, 1 the one since GCC 5", TORCH),
    "-DOLD_GENERATOR_PATH": ("torch's random generator header is in its old place", FLASH_ATTN),
    "-DCK_TILE_FMHA_FWD_FAST_EXP2": ("softmax by exp2, which the GPU has as an instruction", FLASH_ATTN),
    "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT": (
        "how float32 becomes bfloat16: 0 nearest, 1 cut off but NaN kept, 2 cut off, 3 nearest and 4 away, by assembly",
        FLASH_ATTN,
    ),
    "-DCK_USE_XDL": ("use the matrix cores (MFMA) of Instinct GPUs", FLASH_ATTN),
    "-DUSE_PROF_API": ("HIP's profiling interface; nothing in CK's headers reads it", FLASH_ATTN),
    **{
        f"-DCK_ENABLE_{name}": (
            "CK's code for this type; every kernel is compiled with all of them on",
            FLASH_ATTN,
        )
        for name in ("BF16", "BF8", "FP16", "FP32", "FP64", "FP8", "INT8")
    },
}
"""By the flag; macros by their name, whatever their value; a pair such as ``-mllvm X`` as two words."""

BEGINNINGS: tuple[tuple[re.Pattern[str], Meaning], ...] = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (r"-cuid=", ("a fixed id, so that the same source gives the same object wherever it is compiled", FACTORY)),
        (r"-parallel-jobs=", ("archs of one file at once: as many times the memory", "")),
        (r"--(?:rocm-path|rocm-device-lib-path|hip-path|hip-device-lib-path)=", ("where ROCm is", "")),
        (r"--gpu-max-threads-per-block=", ("the largest workgroup", "")),
        (r"-fuse-cuid=", ("how the id of an object is made", "")),
        (r"-W", ("which warnings are printed or are errors", "")),
        (r"-L|-l|-Wl,|-shared$", ("for the linker", "")),
        (r"--threads=?", ("nvcc's: this is a CUDA command", "")),
        (r"-gencode|arch=compute_", ("nvcc's: this is a CUDA command", "")),
    )
)


def meaning_of(flag: str) -> Meaning | None:
    """What a flag does and who gives it; None if it is not known here."""
    name = flag.partition("=")[0] if flag.startswith("-D") else flag
    known = FLAGS.get(name) or FLAGS.get(flag)
    return known or next((meaning for pattern, meaning in BEGINNINGS if pattern.match(flag)), None)
