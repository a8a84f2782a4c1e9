"""Texts that people paste, with the kind of text and the cause that `explain` must find; other texts are refused."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from explain.test_explain_causes import FAILURES
from wheelfactory.core.errors import InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.explain.build_log import BuildLog, read_build_log
from wheelfactory.explain.causes import symptom_table
from wheelfactory.explain.explanation import DOCTOR_LINE, find_wheel_line
from wheelfactory.explain.log_lines import clean_line
from wheelfactory.matrix.load import load_matrix

TRACE = "Traceback (most recent call last):\n"
CALL = f'{TRACE}  File "/v/lib/python3.12/site-packages/flash_attn/flash_attn_interface.py", line 15, in fwd\n'
META = "Collecting flash-attn==2.8.3\n  Preparing metadata (setup.py): started\n"
BUILD = (
    f"{META}  torch.__version__  = 2.12.1+rocm7.2\n  running bdist_wheel\n  building 'flash_attn_2_cuda' extension\n"
)
COMPILE = f"{BUILD}[9/99] /opt/rocm/bin/hipcc -c -c build/fmha_fwd.hip -o x.o --offload-arch=gfx1151\nFAILED: x.o\n"
SDK = f"{BUILD}[9/99] /v/_rocm_sdk_devel/bin/hipcc -c -c csrc/flash_attn_ck/a.hip -o a.o\nFAILED: a.o\n"
CUDA_PIN = f"{META.replace('2.8.3', '2.5.6')}    torch_cuda_version = parse(torch.version.cuda)\n"
SOLVER = "  x No solution found when resolving dependencies:\n  ╰─▶ "
NONE = "(from versions: none)"
RADEON = "Looking in indexes: https://repo.radeon.com/rocm/manylinux/rocm-rel-7.1/\n"


class Pasted(NamedTuple):
    """A text, and what is found in it."""

    kind: str
    cause: str
    text: str
    answer: str
    """A part of the reason or the remedy."""


PASTED = [
    Pasted(
        "build",
        "C++ headers too new for this compiler",
        f"{COMPILE}/usr/include/c++/16/bits/stl_vector.h:1130:2: error: reference to __host__ function "
        "'__glibcxx_assert_fail' in __host__ __device__ function\n",
        "gcc-install-dir",
    ),
    Pasted(
        "build",
        "C++ headers too new for this compiler",
        f"{COMPILE}/usr/lib/gcc/x86_64-linux-gnu/15/../../include/c++/15/type_traits:34:10: error: undeclared x\n",
        "older GCC",
    ),
    *(
        Pasted("build", "host compiler instead of hipcc", f"{COMPILE}{line}\n", "CXX=hipcc")
        for line in (
            "x86_64-linux-gnu-g++: error: unrecognized command-line option '--offload-arch=gfx942'",
            "gcc: error: unrecognized command-line option '-fno-gpu-rdc'",
            "g++: error: language hip not recognized",
        )
    ),
    Pasted(
        "build",
        "hipcc of another ROCm",
        f"{COMPILE}clang++: error: unknown argument: '-fno-offload-uniform-block'\n",
        "the ROCm of torch 2.12.1+rocm7.2",
    ),
    Pasted(
        "build",
        "hipcc of another ROCm",
        f"{COMPILE}clang (LLVM option parsing): Unknown command line argument '-amdgpu-function-calls=false'.\n",
        "option -amdgpu-function-calls=false",
    ),
    *(
        Pasted("build", "CK has no code for this GPU", f"{COMPILE}{line}\n", "no code for gfx1151")
        for line in (
            "/w/ck/amd_buffer.hpp:48:9: error: use of undeclared identifier 'CK_BUFFER_RESOURCE_3RD_DWORD'",
            "/w/ck_tile/mma.hpp:20:5: error: '__builtin_amdgcn_mfma_f32_32x32x8f16' needs target feature mai-insts",
            "/w/ck_tile/atomic.hpp:66:19: error: static assertion failed due to requirement '(4 == 1)': wrong!",
        )
    ),
    Pasted(
        "build",
        "kernel does not fit the GPU",
        f"{COMPILE}ld.lld: error: <unknown>:0:0: local memory (98304) exceeds limit (65536) in function 'k'\n",
        "98304 bytes of local memory (LDS), and gfx1151 has 65536",
    ),
    Pasted(
        "build", "kernel does not fit the GPU", f"{COMPILE}error: ran out of registers in function 'k'\n", "OPT_DIM"
    ),
    *(
        Pasted("build", "setuptools and wheel differ", f"{META}{line}\n", "--upgrade wheel setuptools")
        for line in (
            "ModuleNotFoundError: No module named 'pkg_resources'",
            "error: invalid command 'bdist_wheel'",
            "ModuleNotFoundError: No module named 'distutils'",
        )
    ),
    Pasted(
        "build", "requirement of the build is missing", f"{META}ImportError: No module named 'packaging'\n", "psutil"
    ),
    Pasted(
        "build",
        "release for CUDA only",
        f"{CUDA_PIN}TypeError: expected string or bytes-like object, got 'NoneType'\n",
        "flash-attn 2.5.6 may be too old",
    ),
    Pasted("build", "setup.py looks for CUDA", f"{BUILD}OSError: CUDA_HOME environment variable is not set\n", "2.6.3"),
    Pasted(
        "build",
        "no virtual environment",
        f"{META}Submodule path 'third_party/aiter': checked out\nerror: externally-managed-environment\n",
        "second pip for third_party/aiter",
    ),
    *(
        Pasted("build", "CK of another commit", f"{COMPILE}{line}\n", "submodule update --init --force")
        for line in (
            "/w/csrc/flash_attn_ck/mha_fwd.hip:77:12: error: no member named 'seqlen_k_ptr' in 'fmha_fwd_args'",
            "/w/csrc/flash_attn_ck/mha_bwd.hip:12:20: error: no member named 'BlockFmha' in namespace 'ck_tile'",
            "/w/csrc/flash_attn_ck/mha_fwd.hip:112:9: error: excess elements in struct initializer",
        )
    ),
    Pasted(
        "build",
        "ROCm's headers are missing",
        f"{SDK}/t/HIPContext.h:9:10: fatal error: 'hipblas/hipblas.h' file not found\n",
        'pip install "rocm[devel]"',
    ),
    Pasted(
        "build",
        "wrong torch",
        "  x Failed to build `flash-attn==2.8.3`\n  Call to `setuptools.build_meta.build_wheel` failed\n"
        "  ModuleNotFoundError: No module named 'torch'\n",
        "--no-build-isolation",
    ),
    Pasted(
        "build",
        "no network",
        "fatal: unable to access 'https://github.com/ROCm/composable_kernel.git/': Could not resolve host\n",
        "check network",
    ),
    Pasted("build", "no hipconfig", f"{META}/bin/sh: 1: hipconfig: not found\n", "PATH=/opt/rocm/bin"),
    Pasted(
        "build", "build on Windows", f"{BUILD}error: Microsoft Visual C++ 14.0 or greater is required.\n", "ROCm in WSL"
    ),
    Pasted("build", "build on Windows", f"{BUILD}error: [WinError 2] The system cannot find the file\n", "WSL"),
    Pasted("build", "connection broke", f"{META}fatal: unable to read: Connection reset by peer\n", "again"),
    Pasted(
        "build", "no GPU to ask for its arch", f"#12 6.2 {META}#12 7 No HIP GPUs are available\n", "GPU_ARCHS=gfx942"
    ),
    Pasted("build", "out of memory", f"#9 12.0 {META}#9 ERROR: process did not complete: signal: killed\n", "MAX_JOBS"),
    Pasted("build", "out of memory", f"#9 12.0 {META}ERROR: failed to solve: cannot allocate memory\n", "MAX_JOBS"),
    # pip and uv
    *(
        Pasted("pip", "wheel for another Python or system", line, "pip debug --verbose")
        for line in (
            "ERROR: flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform.\n",
            "  Caused by: A path dependency is incompatible with the current platform: flash_attn-2.8.3.whl\n",
            f"{SOLVER}Because torch==2.9.1+rocm6.4 has no wheels with a matching Python ABI tag (e.g., `cp314`)\n",
            "ERROR: Package 'flash-attn' requires a different Python: 3.9.2 not in '>=3.10'\n",
        )
    ),
    Pasted("pip", "wheel was renamed", "ERROR: Invalid wheel filename: 'flash_attn_rocm.whl'\n", "own name"),
    Pasted(
        "pip", "backend unknown to this uv", "error: invalid value 'rocm7.1' for '--torch-backend <B>'\n", "whl/rocm7.1"
    ),
    Pasted(
        "pip",
        "list of files, not an index",
        f"{RADEON}{META}ERROR: Could not find a version that satisfies the requirement torch==2.8.0 {NONE}\n",
        "--find-links",
    ),
    Pasted(
        "pip",
        "index has no such version",
        "Looking in indexes: https://download.pytorch.org/whl/rocm6.2\nERROR: Could not find a version that "
        "satisfies the requirement torch==2.9.1 (from versions: 2.5.0+rocm6.2, 2.5.1+rocm6.2)\n",
        "does not have torch==2.9.1",
    ),
    Pasted(
        "pip",
        "index has no such package",
        f"ERROR: Could not find a version that satisfies the requirement torch==2.13.* {NONE}\n",
        "no torch==2.13.*",
    ),
    Pasted(
        "pip", "index has no such package", f"{SOLVER}Because torch was not found in the package registry\n", "no torch"
    ),
    Pasted(
        "pip",
        "index of another torch",
        "    The user requested torch==2.9.1+rocm7.2\n    flash-attn 2.8.3 depends on torch==2.13.*\n",
        "needs torch==2.13.*, and the environment has or asks for torch 2.9.1+rocm7.2",
    ),
    Pasted(
        "pip",
        "index of another torch",
        f"{SOLVER}Because flash-attn==2.8.3 depends on torch==2.13.* and you require torch==2.9.1\n",
        "needs torch==2.13.*",
    ),
    Pasted(
        "pip",
        "another package pins its torch",
        "vllm 0.33 requires torch==2.14.0, but you have torch 2.13.0+rocm7.2 which is incompatible.\n",
        "the torch that vllm pins",
    ),
    Pasted("pip", "file differs from the index", "error: Hash mismatch for `flash-attn==2.8.3`\n", "do not install it"),
    Pasted("pip", "address not found", "ERROR: HTTP error 404 while getting http://x/flash_attn.whl\n", "address"),
    Pasted(
        "pip", "pip may not write there", "ERROR: Could not install packages due to an OSError: [Errno 13]\n", "sudo"
    ),
    # an import
    Pasted("import", "no torch", f"{TRACE}ModuleNotFoundError: No module named 'torch'\n", "rocm7.2"),
    Pasted(
        "import",
        "torchvision of another torch",
        f"pytorch version: 2.8.0+rocm7.1\n{TRACE}RuntimeError: operator torchvision::nms does not exist\n",
        "another torch than torch 2.8.0+rocm7.1",
    ),
    Pasted(
        "import",
        "built for another torch",
        f"{CALL}ImportError: /v/flash_attn_2_cuda.cpython-312.so: undefined symbol: _ZN3c103hip28c10\n",
        "two builds",
    ),
    Pasted("import", "built for another Python", "ImportError: /v/x.so: undefined symbol: _PyGen_Send\n", "the doctor"),
    Pasted("import", "built for CUDA", f"{CALL}ImportError: libcudart.so.12: cannot open shared object file\n", "CUDA"),
    Pasted("import", "torch is not built for ROCm", "OSError: libtorch_hip.so: cannot open shared object\n", "CPUs"),
    Pasted(
        "import", "ROCm's library is missing", "ImportError: libamdhip64.so.6: cannot open shared object\n", "ROCM_PATH"
    ),
    Pasted("import", "system library too old", f"{TRACE}ImportError: version `GLIBCXX_3.4.32' not found\n", "conda"),
    Pasted(
        "import",
        "flash-attn has no kernels here",
        f"{CALL}ModuleNotFoundError: No module named 'flash_attn_2_cuda'\n",
        "TRITON_AMD_ENABLE=TRUE",
    ),
    Pasted("import", "no flash-attn", f"{TRACE}ModuleNotFoundError: No module named 'flash_attn'\n", "python -m pip"),
    Pasted(
        "import", "no flash-attn", "ImportError: the package flash_attn seems to be not installed.\n", "python -m pip"
    ),
    Pasted(
        "import",
        "flash-attn of another release",
        f"{TRACE}ImportError: cannot import name 'flash_attn_varlen_func' from 'flash_attn' (unknown location)\n",
        "another directory",
    ),
    Pasted(
        "import",
        "flash-attn of another release",
        "TypeError: flash_attn_func() got an unexpected keyword argument 's_aux'\n",
        "the release that the program needs",
    ),
    Pasted("import", "aiter does not fit", f"{CALL}ModuleNotFoundError: No module named 'aiter'\n", "up to 2.8.3"),
    Pasted(
        "import", "requirement is missing", f"{CALL}ModuleNotFoundError: No module named 'einops'\n", "needs einops"
    ),
    Pasted("import", "damaged file", "ImportError: /v/flash_attn_2_cuda.so: file too short\n", "df -h"),
    # a GPU at run time
    Pasted(
        "run time",
        "kernel library could not be linked",
        "[aiter] failed jit build [module_x]\n/usr/bin/ld: cannot find -lamdhip64: No such file\n",
        "rocm-sdk path --root",
    ),
    *(
        Pasted("run time", "no code for this GPU", line, "the doctor")
        for line in (
            f"{CALL}RuntimeError: HIP error: invalid device function\n",
            "torch.AcceleratorError: HIP error: no kernel image is available for execution on the device\n",
            '"hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"\n',
            f"{CALL}AssertionError: Unsupported gfx arch gfx1031\n",
            "rocBLAS error: Cannot read /opt/rocm/lib/TensileLibrary.dat for GPU arch : gfx1103\n",
        )
    ),
    Pasted(
        "run time", "CK has no kernel for this call", f"{CALL}RuntimeError: invalid argument for fmha_bwd\n", "preview"
    ),
    Pasted("run time", "head dim too large", f"{CALL}RuntimeError: only supports head dimension at most 256\n", "sdpa"),
    Pasted(
        "run time",
        "kernel does not fit the GPU",
        f"{TRACE}OutOfResources: out of resource: shared memory, Required: 98304, Hardware limit: 65536.\n",
        "needs 98304 bytes of shared memory (LDS), and the GPU has 65536",
    ),
    *(
        Pasted(
            "run time", "Triton cannot compile the kernel", f"{CALL}{line}\n", "Triton is the one that torch requires"
        )
        for line in (
            "triton.compiler.errors.CompilationError: at 45:22:",
            "RuntimeError: PassManager::run failed",
            "ValueError: 'IS_CAUSAL' is not in list",
        )
    ),
    Pasted(
        "run time",
        "AOTriton's switch is off",
        "UserWarning: Flash attention on Current AMD GPU is still experimental. Enable it with "
        "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1.\n",
        "export TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1",
    ),
    Pasted(
        "run time",
        "option is not supported",
        f"{CALL}RuntimeError: FlashAttention backward does not support dropout\n",
        "the other backend",
    ),
    Pasted("run time", "GPU memory is full", "torch.OutOfMemoryError: HIP out of memory. Tried 8 GiB\n", "AOTRITON"),
    Pasted("run time", "GPU fault", "Memory access fault by GPU node-1 on address 0x7f. Reason: Page\n", "SERIALIZE"),
    Pasted(
        "run time", "dtype is not supported", f"{CALL}FlashAttention only support fp16 and bf16: error\n", "autocast"
    ),
    Pasted("run time", "no GPU visible", f"{TRACE}RuntimeError: No HIP GPUs are available\n", "--device=/dev/kfd"),
    Pasted("run time", "no GPU visible", "RuntimeError: 0 active drivers ([]). There should only be one.\n", "render"),
    Pasted("run time", "error at run time", f"{CALL}ValueError: strange thing\n", "the doctor"),
    # a container
    Pasted(
        "container", "devices of the container", "docker: could not select device driver: error\n", "--device=/dev/kfd"
    ),
    Pasted(
        "container",
        "host without an AMD driver",
        'Error response from daemon: error gathering device information: custom device "/dev/kfd": no such file\n',
        "the host has no /dev/kfd",
    ),
    Pasted("container", "image not found", "manifest for rocm/pytorch:rocm9 not found: error\n", "Docker Hub"),
    Pasted("container", "image for another processor", "no matching manifest for linux/arm64: error\n", "x86-64"),
]

OTHERS = [
    f'{TRACE}  File "/srv/app.py", line 3\nPermissionError: [Errno 13] Permission denied: "/srv/data"\n',
    f"{TRACE}KeyError: 'flash'\nValueError: not a flash-attn build\n",
    "npm ERR! code ENOENT\nnpm ERR! No such file or directory\n",
    "make: *** [Makefile:10: all] Error 2\nmain.c:3:10: fatal error: foo.h: No such file or directory\n",
    f"{TRACE}ModuleNotFoundError: No module named 'requests'\n",
    f"{TRACE}requests.exceptions.ConnectionError: Failed to establish a new connection\n",
    "2026-01-01 ERROR [main] java.lang.NullPointerException: x is null\n",
]


def read(text: str) -> BuildLog:
    return read_build_log(filter(lambda line: line.text, map(clean_line, text.splitlines())), "pasted")


@pytest.mark.parametrize("pasted", PASTED, ids=lambda pasted: pasted.cause)
def test_a_pasted_text_has_its_kind_cause_and_next_step(pasted: Pasted) -> None:
    build_log = read(pasted.text)
    assert build_log.cause
    assert (build_log.kind, build_log.cause.name) == (pasted.kind, pasted.cause)
    assert pasted.answer in f"{build_log.cause.reason} {build_log.cause.remedy}"
    assert "{" not in build_log.cause.reason, "every name in braces is replaced"


@pytest.mark.parametrize("text", OTHERS)
def test_a_text_about_something_else_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="nothing about flash-attn in this text"):
        read(text)


def test_every_symptom_has_a_text() -> None:
    known = {symptom.name for symptom in (*symptom_table().symptoms, *symptom_table().generic_symptoms)}
    assert known == {case.name for case in FAILURES} | {pasted.cause for pasted in PASTED}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{COMPILE}FAILED: x\n".replace("gfx1151", "gfx1100"), "SITE/simple/rocm72/torch2.12/triton/ flash-attn"),
        # AMD's build of torch 2.9 for a ROCm that PyTorch has no torch 2.9 for: a Triton wheel does not depend on ROCm
        (
            BUILD.replace("2.12.1+rocm7.2", "2.9.1+rocm7.2.0.git7e1") + "FAILED: x\n",
            "SITE/simple/rocm64/torch2.9/triton/",
        ),
        (BUILD.replace("2.12.1", "2.4.1") + "FAILED: x\n", DOCTOR_LINE),
        (f"{CALL}RuntimeError: HIP error: invalid device function\n", DOCTOR_LINE),
    ],
)
def test_a_failure_ends_with_the_matching_wheel_or_the_doctor(text: str, line: str) -> None:
    assert line in find_wheel_line(read(text), load_matrix(MATRIX))


def test_no_wheel_is_named_where_it_changes_nothing() -> None:
    matrix = load_matrix(MATRIX)
    assert find_wheel_line(read(f"{TRACE}RuntimeError: operator torchvision::nms does not exist\n"), matrix) == ""
    assert find_wheel_line(read(COMPILE.partition("FAILED")[0]), matrix) == "", "it runs"
