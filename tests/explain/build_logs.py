"""Logs of flash-attn builds, as setup.py, torch, ninja and pip print them; written for the tests of `explain`."""

from __future__ import annotations

import io
from collections.abc import Iterator

from wheelfactory.explain.build_log import BuildLog, read_build_log
from wheelfactory.explain.log_lines import read_log_lines

ROCM_HIPCC = "/opt/rocm-7.2.0/bin/hipcc"

KERNEL_283 = (
    "fmha_bwd_d128_bf16_batch_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1"
    "_kr_ktr_vr_iglp_psk_alibi_ndbias_mask_dropout_wg16_deterministic"
)
KERNEL_MAIN = (
    "fmha_bwd_d128_bf16_batch_b16x128x128x16x128x16x32x128x128_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_maxq0"
    "_pd8dv8_nbias_ndbias_nmask_ndropout_ndeterministic_ntrload_gfx9"
)
"""In the form of flash-attn after 2025-12, with the arch family at the end."""

KERNEL_FLAGS = (
    "-fPIC -D__HIP_PLATFORM_AMD__=1 -DUSE_ROCM=1 -DHIPBLAS_V2 -DCUDA_HAS_FP16=1 -D__HIP_NO_HALF_OPERATORS__=1 "
    "-D__HIP_NO_HALF_CONVERSIONS__=1 {archs} -O3 -std=c++20 -DCK_TILE_FMHA_FWD_FAST_EXP2=1 "
    "-fgpu-flush-denormals-to-zero -DCK_ENABLE_BF16 -DCK_ENABLE_BF8 -DCK_ENABLE_FP16 -DCK_ENABLE_FP32 "
    "-DCK_ENABLE_FP64 -DCK_ENABLE_FP8 -DCK_ENABLE_INT8 -DCK_USE_XDL -DUSE_PROF_API=1 -D__HIP_PLATFORM_HCC__=1 "
    "-DCK_TILE_FLOAT_TO_BFLOAT16_DEFAULT=3 -mllvm --lsr-drop-solution=1 -fno-offload-uniform-block "
    "-mllvm -enable-post-misched=0 -mllvm -amdgpu-early-inline-all=true -mllvm -amdgpu-function-calls=false "
    "-DTORCH_API_INCLUDE_EXTENSION_H '-DPYBIND11_COMPILER_TYPE=\"_gcc\"' -DTORCH_EXTENSION_NAME=flash_attn_2_cuda "
    "-fno-gpu-rdc"
)

PREAMBLE = """\


torch.__version__  = 2.9.1+rocm7.2.0


running bdist_wheel
running build
running build_ext
building 'flash_attn_2_cuda' extension
"""


def read(log: str) -> BuildLog:
    """Return what a log says."""
    return read_build_log(read_log_lines(io.BytesIO(log.encode()), "build.log"), "build.log")


def command(name: str = KERNEL_MAIN, archs: tuple[str, ...] = ("gfx942",), hipcc: str = ROCM_HIPCC) -> str:
    """The command line of a kernel compile by torch, from a published log of a build for MI300X."""
    source, ck = "/src/flash-attention", "/src/flash-attention/csrc/composable_kernel"
    torch = "/home/me/.venv/lib/python3.12/site-packages/torch/include"
    folders = [f"{ck}/include", f"{ck}/library/include", f"{ck}/example/ck_tile/01_fmha", torch]
    folders += [f"{torch}/torch/csrc/api/include", "/opt/rocm-7.2.0/include", "/usr/include/python3.12"]
    flags = KERNEL_FLAGS.format(archs=" ".join(f"--offload-arch={arch}" for arch in archs))
    place = f"{source}/build/temp.linux-x86_64-cpython-312/build/{name}.o"
    headers = " ".join(f"-I{folder}" for folder in folders)
    return f"{hipcc}  {headers} -c -c {source}/build/{name}.hip -o {place} {flags}"


def compiles(count: int, total: int = 2525, first: int = 1, name: str = KERNEL_MAIN) -> Iterator[str]:
    """Lines of ``ninja -v``, each with a compile that has ended."""
    for number in range(first, first + count):
        yield f"[{number}/{total}] {command(name)}"


def running(count: int = 111, total: int = 2525, jobs: int = 8) -> str:
    """A build that compiles."""
    return "".join([f'export MAX_JOBS={jobs}\nexport GPU_ARCHS="gfx942"\n', PREAMBLE, *_lines(compiles(count, total))])


def timed(count: int, seconds: int, stamp: str = "2026-11-21T19:{minute:02}:{second:02}.1234567Z ") -> str:
    """A build whose lines have times, `seconds` apart, as GitHub's runners write them."""
    texts = [*PREAMBLE.splitlines(), *compiles(count)]
    ends = [max(0, number - len(PREAMBLE.splitlines()) + 1) * seconds for number in range(len(texts))]
    stamps = [stamp.format(minute=end // 60, second=end % 60) for end in ends]
    return "".join(f"{one}{text}\r\n" for one, text in zip(stamps, texts, strict=True))


def failed(*messages: str, compiled: int = 3) -> str:
    """A failed build: the compiler prints `messages`, then ninja and pip report the failure."""
    place = "/src/flash-attention/build/temp.linux-x86_64-cpython-312/build"
    return "".join(
        [
            PREAMBLE,
            *_lines(compiles(compiled)),
            *_lines([f"FAILED: [code=1] {place}/{KERNEL_283}.o ", command(KERNEL_283), *messages]),
            *_lines(compiles(1, first=compiled + 2)),
            FOLLOW_ON,
        ]
    )


FOLLOW_ON = """\
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
  File "/usr/lib/python3/torch/utils/cpp_extension.py", line 2893, in _run_ninja_build
    subprocess.run(
subprocess.CalledProcessError: Command '['ninja', '-v', '-j', '8']' returned non-zero exit status 1.

The above exception was the direct cause of the following exception:

RuntimeError: Error compiling objects for extension
error: subprocess-exited-with-error
ERROR: Failed building wheel for flash-attn
"""

HEALTHY = """\
Collecting flash-attn==2.8.3
  WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'ReadTimeoutError("read timed out")'
  UserWarning: Failed to initialize NumPy: No module named 'numpy' (Triggered internally at tensor_numpy.cpp:84.)
  UserWarning: flash_attn was requested, but nvcc was not found.  Are you sure your environment has nvcc available?
/w/csrc/ck/hip_check_error.hpp -> /w/csrc/ck/hip_check_error.hpp [skipped, no changes]
copying flash_attn/utils/error_cannot_find.py -> build/lib/flash_attn/utils
In file included from /w/build/fmha_fwd_api.hip:3:
/w/include/ck/error.hpp:41:9: warning: unused variable 'killed' [-Wunused-variable]
/w/include/ck/host.hpp:7:1: warning: 'invalid' is deprecated: not found, use error_code [-Werror=deprecated]
2 warnings generated when compiling for gfx942.
HIP version: 7.2.1 (no errors)
* the wheel's errors are not fatal
adding 'flash_attn/ops/missing_error.py'
Successfully built flash-attn
"""
"""Of a build that ended well, with words in it that failures have too."""


def rows(table: str, width: int) -> list[tuple[str, ...]]:
    """Return the rows of a table with cells between bars. Indented lines are the last cells of rows with one head."""
    found: list[tuple[str, ...]] = []
    head: list[str] = []
    for line in table.split("\n")[1:-1]:
        if line.startswith("    "):
            found.append((*head, line.strip()))
            continue
        cells = line.split(" | ")
        head = cells[: width - 1]
        if len(cells) == width:
            found.append(tuple(cells))
    return [(*head, text.replace(r"\n", "\n")) for *head, text in found]


def _lines(texts: Iterator[str] | list[str]) -> list[str]:
    return [f"{text}\n" for text in texts]
