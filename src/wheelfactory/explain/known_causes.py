"""The build failures that are known: what a line of the log looks like, and what to do.

Messages were taken from the programs that print them: flash-attn's setup.py (2.6.3 to 2.8.3.post2), torch's
cpp_extension (2.5 to 2.13), clang's driver, LLVM, GNU ld, lld, ninja, pip, Linux and GitHub's runners, and from this
program. Imported where a build fails, so it imports next to nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """A kind of failure."""

    name: str
    pattern: re.Pattern[str]
    """Found anywhere in a line, with letters as the program writes them."""
    remedy: str


FEWER_JOBS = (
    "start fewer compiles at once: halve MAX_JOBS until it holds, or give the container more memory or swap; a job "
    "takes 1.3 GiB with Debian's compiler (measured), with AMD's it may be several times as much"
)
ISOLATION = (
    "install ROCm's torch first (pip install torch --index-url of that ROCm), then build with --no-build-isolation "
    "in the same environment"
)
ROCM_TORCH = (
    "this torch is not built for ROCm: pip uninstall torch, install the one from torch's index of your ROCm, and set "
    "FLASH_ATTENTION_FORCE_BUILD=TRUE"
)
CRASHED = (
    "build again: the same file may compile; if it crashes each time, use another ROCm, or take flags of the -mllvm "
    "pairs back with HIPCC_COMPILE_FLAGS_APPEND"
)
SUBMODULE = (
    "take the sources whole: the sdist of 2.7.4.post1 or later from PyPI, or a git clone with "
    "`git submodule update --init csrc/composable_kernel`"
)

_TABLE: tuple[tuple[str, str, str], ...] = (
    (
        "out of memory",
        r"Killed signal terminated program cc1|unable to execute command: Killed|virtual memory exhausted"
        r"|std::bad_alloc|LLVM ERROR: out of memory|[Oo]ut of memory: Kill|out-of-memory handler|oom-kill"
        r"|Cannot allocate memory|\bcode=137\b|exit (?:code|status):? 137\b|SIGKILL|killed by signal 9\b"
        r"|^(?:\S+: line \d+: +\d+ |/bin/\w+: \d+: )?Killed\b|fatal error: Killed",
        FEWER_JOBS,
    ),
    (
        "runaway inlining",
        r"Running pass .*(?:ModuleInlinerWrapperPass|\binline\b|always-inline)",
        "the compiler broke off among the inliner's passes. Unless it is AMD's (before clang 23), it loses itself in "
        "upstream's inlining flags: export HIPCC_COMPILE_FLAGS_APPEND=\"-mllvm "
        '-amdgpu-early-inline-all=false" (the later value wins), or let wheelfactory compile the kernels',
    ),
    (
        "time limit",
        r"exceeded the maximum execution time|has timed out after \d+ minutes|DUE TO TIME LIMIT|JobTimeoutExceeded",
        "compile in parts: `wheelfactory kernels SET --shard 1/N` on N machines; or fewer archs in GPU_ARCHS",
    ),
    (
        "canceled",
        r"The operation was canceled|received a shutdown signal|lost communication with the server",
        "the log does not say by what: a time limit (timeout-minutes, GitHub's 6 hours), too little memory, a person "
        "or a newer push. For time, compile in parts: `wheelfactory kernels SET --shard 1/N` on N machines; for "
        "memory, halve MAX_JOBS",
    ),
    (
        "arch refused",
        r"One of GPU archs of .* is invalid or not supported|unsupported (?:HIP|CUDA) gpu architecture"
        r"|invalid target ID|cannot find ROCm device library for gfx|unknown target CPU 'gfx"
        r"|Unsupported device target gfx|the compiler cannot make code for|does not support: gfx",
        "name only archs that this release and this compiler know, in quotes, with ; between: "
        'GPU_ARCHS="gfx90a;gfx942" (from 2.8 on also gfx950); for other GPUs the Triton backend, from 2.7.4 on: '
        "FLASH_ATTENTION_TRITON_AMD_ENABLE=TRUE, at build and at import",
    ),
    (
        "no GPU to ask for its arch",
        r"No HIP GPUs are available|No CUDA GPUs are available|Found no NVIDIA driver|GPU_ARCHS not set and no GPU"
        r"|cannot determine .*(?:amdgpu|hip|offload) arch",
        "say the arch instead of having the GPU asked: GPU_ARCHS=gfx942",
    ),
    ("wrong torch", r"No module named '?torch'?\b", ISOLATION),
    (
        "wrong torch",
        r"CUDA_HOME environment variable is not set|nvcc was not found|Torch not compiled with (?:ROCm|HIP|CUDA)"
        r"|'NoneType' object has no attribute 'split'|torch\.version\.hip.*None|nvcc not found at"
        r"|cannot find -l(?:torch_hip|c10_hip)\b|unable to find library -l(?:torch_hip|c10_hip)\b",
        ROCM_TORCH,
    ),
    (
        "wrong torch",
        r"flash_attn_2_cuda\S*: undefined symbol",
        "the wheel was built for another torch or C++ ABI: install the wheel for this torch, or build again in this "
        "environment; `wheelfactory inspect WHEEL` says which torch its symbols fit",
    ),
    (
        "ROCm and torch differ",
        r"libamdhip64\.so\S*: cannot open shared object file|undefined symbol: hip[A-Z]"
        r"|(?:ROCm|HIP) version .*(?:does not match|mismatch)",
        "torch and ROCm must agree in major and minor version: install the torch from the index of this ROCm, or point "
        "ROCM_PATH at the ROCm that torch was built for",
    ),
    (
        "git refuses the folder",
        r"detected dubious ownership in repository",
        "the sources belong to another user than the one who builds, as in a container; setup.py calls git there: "
        "git config --global --add safe.directory FOLDER, or build from the sdist",
    ),
    (
        "missing submodule",
        r"csrc/(?:composable_kernel|cutlass) is missing|can't open file '[^']*generate\.py'"
        r"|(?:fatal error: '?)(?:ck_tile|ck|fmha_fwd|fmha_bwd|mask)(?:/\S+)?\.hpp\b"
        r"|(?:pathspec|submodule path) '\S*composable_kernel'|clone of '\S*composable_kernel\S*' into .* failed"
        r"|'git', 'submodule', 'update'",
        SUBMODULE,
    ),
    (
        "missing header",
        r"fatal error: '?(?:Python|pyconfig)\.h\b",
        "install the headers of the Python that builds: apt-get install python3-dev, or python3.11-dev for 3.11",
    ),
    (
        "missing header",
        r"fatal error: '?(?:(?:hip|roc)(?:/|blas|sparse|solver|rand|fft|cub|prim|thrust|_|\.h)|thrust/)",
        "install ROCm's development packages (rocm-dev; rocm-libs or hipblas-dev, hipsparse-dev, rocthrust-dev, ...): "
        "torch's headers include them",
    ),
    (
        "missing header",
        r"fatal error: '[a-z_]+' file not found",
        "clang found no C++ library: install g++ (libstdc++-N-dev, where N is the newest GCC in /usr/lib/gcc: clang "
        "takes that one, whether it is whole or not)",
    ),
    (
        "missing header",
        r"fatal error: '[^']+' file not found|fatal error: \S+: No such file or directory",
        "install the package that has this header, or check that its folder is among the -I of the command",
    ),
    (
        "argument list too long",
        r"Argument list too long|\bE2BIG\b|\[Errno 7\]|has more arguments than Linux",
        "build in a folder with a short path (/w), with `ulimit -s unlimited`; fewer head dims (OPT_DIM=128) make "
        "fewer objects",
    ),
    (
        "no space left",
        r"[Nn]o space left on device|\[Errno 28\]|[Dd]isk quota exceeded|fatal error: no space",
        "make room where the build and TMPDIR lie: a CK build with one arch takes about 1.5 GB, with temporary files",
    ),
    (
        "ROCm incomplete",
        r"cannot find ROCm device library;|cannot find HIP runtime|cannot find ROCm device library for ABI",
        "the device libraries of this ROCm are missing or elsewhere: install rocm-device-libs, or set ROCM_PATH",
    ),
    (
        "no compiler",
        r"hipcc: (?:command )?not found|hipcc'?: No such file"
        r"|No such file or directory: '\S*(?:hipcc|g\+\+|gcc|clang\+\+|c\+\+)'"
        r"|ROCM_HOME environment variable is not set|CK kernels need hipcc|cannot run: \S*hipcc"
        r"|command '\S*(?:gcc|g\+\+|cc|c\+\+)' failed: No such file|hipcc was not found",
        "install ROCm's compiler (hipcc) and a host compiler (apt-get install g++), and set ROCM_PATH; "
        "the Triton backend needs neither",
    ),
    (
        "no ninja",
        r"No such file or directory: 'ninja'|ninja: (?:command )?not found|Ninja is required"
        r"|ninja version \(\S+\) incompatible|ninja: error: build\.ninja:\d+: ",
        "pip install ninja (1.13 or newer) into the environment that builds; an old one on PATH may stand before it",
    ),
    (
        "no virtual environment",
        r"externally-managed-environment",
        "this Python belongs to the distribution: build in a virtual environment, with ROCm's torch in it "
        "(python3 -m venv --system-site-packages DIR where the system's torch is to be used)",
    ),
    (
        "no network",
        r"Temporary failure in name resolution|Could not resolve host|Failed to establish a new connection"
        r"|No matching distribution found|Could not find a version that satisfies|CERTIFICATE_VERIFY_FAILED"
        r"|ReadTimeoutError|ProxyError|Network is unreachable|unable to access 'https?:",
        "the build could not fetch what it needs: check network, proxy, PIP_INDEX_URL, and that this version exists; "
        "or fetch it before, and build with --no-build-isolation --no-deps",
    ),
    (
        "library too large to link",
        r"relocation \S* ?out of range|relocation truncated to fit|out of range: -?\d+ is not in",
        "the library outgrew 2 GiB of addresses: fewer archs or head dims (OPT_DIM), or pack the device code with "
        'HIPCC_COMPILE_FLAGS_APPEND="--offload-compress"',
    ),
    (
        "compiler crashed",
        r"internal compiler error|LLVM ERROR: "
        r"|unable to execute command: (?:Segmentation fault|Aborted|Illegal instruction|Bus error)",
        CRASHED,
    ),
    (
        "interrupted",
        r"^KeyboardInterrupt|interrupted by user|unable to execute command: (?:Interrupt|Terminated|Hangup)"
        r"|^Terminated\b|SIGTERM|exit (?:code|status):? 143\b|^error: interrupted",
        "nothing is wrong with the build: start it again; setup.py goes on from the objects in its build folder (pip "
        "of a download begins anew)",
    ),
    (
        "refused by the factory",
        r"^error: (?:the compiler is not started by the launcher|no offload arch|kernel archive of another key"
        r"|kernels of one set are compiled with different flags|cannot keep compiled kernels|cannot compile kernels"
        r"|more shards than kernels|the time is too short|a kernel reads what the factory keeps from it|cannot build )",
        "the hint that the command printed with it says what to do",
    ),
)

_UNSPECIFIC: tuple[tuple[str, str, str], ...] = (
    ("compiler crashed", r"PLEASE submit a bug report", CRASHED),
    ("out of memory", r"command failed due to signal|^FAILED: \[code=(?:-9|9)\]", FEWER_JOBS),
    (
        "link error",
        r"undefined reference to|cannot find -l\S+|multiple definition of|unable to find library -l|duplicate symbol",
        "the objects or libraries do not fit together: remove the build folder and build again; "
        "cannot find -l... names a library to install",
    ),
    (
        "compile error",
        r":\d+:\d+: (?:fatal )?error: |^(?:clang\S*|hipcc|g\+\+|gcc): (?:fatal )?error: |^fatal error: ",
        "this compiler refuses the source: check that torch, ROCm and flash-attn fit together (wheelfactory matrix), "
        "and read the lines after this one",
    ),
    (
        "Python error",
        r"^(?!RuntimeError: Error compiling|subprocess\.CalledProcessError)[A-Za-z_.]+(?:Error|Exception)(?:: |$)",
        "setup.py ended before the compile; the lines above say where",
    ),
)


def _rows(table: tuple[tuple[str, str, str], ...]) -> tuple[Known, ...]:
    return tuple(Known(name, re.compile(pattern), remedy) for name, pattern, remedy in table)


KNOWN = _rows(_TABLE)
"""Each tells the cause by itself, wherever in the log it stands; the first row that fits a line counts."""

UNSPECIFIC = _rows(_UNSPECIFIC)
"""What is told if no line fits any of `KNOWN`: these lines also follow other causes."""
