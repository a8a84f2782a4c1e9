"""Each known failure as real logs show it, and lines that are no failure."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from explain.build_logs import FOLLOW_ON, HEALTHY, PREAMBLE, compiles, failed, running
from wheelfactory.explain.causes import find_cause, may_show_error


class Failure(NamedTuple):
    """Output of a failed build, with the expected cause and parts of its remedy and evidence."""

    name: str
    output: str
    remedy: str
    evidence: str = ""


FAILURES = [
    Failure("out of memory", "clang++: error: unable to execute command: Killed", "MAX_JOBS"),
    Failure(
        "out of memory",
        "c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
        "MAX_JOBS",
    ),
    Failure("out of memory", "/bin/sh: line 1: 12345 Killed    /opt/rocm/bin/hipcc -O3 -c a.hip -o a.o", "MAX_JOBS"),
    Failure("out of memory", "virtual memory exhausted: Cannot allocate memory", "MAX_JOBS"),
    Failure("out of memory", "LLVM ERROR: out of memory\nPLEASE submit a bug report to LLVM", "MAX_JOBS"),
    Failure("out of memory", "terminate called after throwing an instance of 'std::bad_alloc'", "MAX_JOBS"),
    Failure("out of memory", "clang++: error: clang frontend command failed due to signal (use -v)", "MAX_JOBS"),
    Failure("out of memory", 'process "/bin/sh -c pip install ." did not complete: exit code: 137', "MAX_JOBS"),
    Failure("out of memory", "died with <Signals.SIGKILL: 9>.", "MAX_JOBS"),
    Failure(
        "arch refused",
        "AssertionError: One of GPU archs of ['gfx1030'] is invalid or not supported by Flash-Attention",
        "GPU_ARCHS",
    ),
    Failure("arch refused", "clang++: error: invalid target ID 'gfx9942'; format is a processor name", "GPU_ARCHS"),
    Failure("arch refused", "clang++: error: unsupported HIP gpu architecture: gfx1250", "GPU_ARCHS"),
    Failure(
        "arch refused", "clang++: error: cannot find ROCm device library for gfx1201; provide its path", "GPU_ARCHS"
    ),
    Failure("no GPU to ask for its arch", "RuntimeError: No HIP GPUs are available", "GPU_ARCHS=gfx942"),
    Failure("wrong torch", "ModuleNotFoundError: No module named 'torch'", "--no-build-isolation"),
    Failure(
        "CUDA and torch differ", "The detected CUDA version (13.0) mismatches the version that was used", "CUDA_HOME"
    ),
    Failure("CUDA too old", "RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.", "nvcc -V"),
    Failure(
        "host compiler too new",
        "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later",
        "CXX=g++-N",
    ),
    Failure("out of memory", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "MAX_JOBS"),
    Failure("out of memory", "ptxas fatal   : Memory allocation failure", "MAX_JOBS"),
    Failure("wrong torch", "AttributeError: 'NoneType' object has no attribute 'split'", "FORCE_BUILD"),
    Failure("wrong torch", "/usr/bin/ld: cannot find -ltorch_hip: No such file or directory", "ROCm"),
    Failure(
        "ROCm and torch differ", "RuntimeError: HIP version 7.1 does not match that of torch (7.2)", "major and minor"
    ),
    Failure(
        "missing submodule",
        "AssertionError: csrc/composable_kernel is missing, please use source distribution or git clone",
        "submodule update",
    ),
    Failure(
        "missing submodule",
        "python: can't open file '/w/ck_tile/01_fmha/generate.py': [Errno 2] No such file",
        "submodule update",
    ),
    Failure("missing submodule", "/w/build/a.hip:3:10: fatal error: 'ck_tile/core.hpp' file not found", "submodule"),
    Failure("missing header", "/t/pybind.h:1:10: fatal error: Python.h: No such file or directory", "python3-dev"),
    Failure("missing header", "/t/pybind.h:1:10: fatal error: 'Python.h' file not found", "python3-dev"),
    Failure("missing header", "/t/HIPContext.h:9:10: fatal error: 'hipblas/hipblas.h' file not found", "hipblas-dev"),
    Failure("missing header", "/t/HIPContext.h:9:10: fatal error: 'hipsparse/hipsparse.h' file not found", "hipsparse"),
    Failure("missing header", "/t/a.h:9:10: fatal error: 'numa.h' file not found", "package with this header"),
    Failure("argument list too long", "OSError: [Errno 7] Argument list too long: '/usr/bin/g++'", "ulimit -s"),
    Failure("argument list too long", "ninja: fatal: posix_spawn: Argument list too long", "short path"),
    Failure("no space left", "fatal error: error in backend: IO failure: No space left on device", "free space"),
    Failure("ROCm incomplete", "clang++: error: cannot find ROCm device library; provide its path", "rocm-device-libs"),
    Failure("no compiler", "/bin/sh: 1: hipcc: not found", "hipcc"),
    Failure("no compiler", "error: cannot run: /opt/rocm/bin/hipcc: No such file or directory", "hipcc"),
    Failure("no compiler", "OSError: ROCM_HOME environment variable is not set. Please set it", "ROCM_PATH"),
    Failure(
        "no ninja", "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)", "ninja"
    ),
    Failure("no ninja", "ninja: error: build.ninja:3: unexpected variable", "1.13"),
    Failure(
        "no network", "fatal: unable to access 'https://example.invalid/x.git/': Could not resolve host", "network"
    ),
    Failure(
        "runaway inlining",
        '4.\tRunning pass "require<profile-summary>,function(invalidate<aa>),cgscc(devirt<4>(inline))" on module',
        "amdgpu-early-inline-all=false",
        evidence="Running pass",
    ),
    Failure(
        "time limit",
        "##[error]The job running on runner GitHub Actions 7 has exceeded the maximum execution time of 360 minutes.",
        "--shard",
    ),
    Failure("time limit", "##[error]The action 'Compile kernels' has timed out after 350 minutes.", "--shard"),
    Failure("canceled", "##[error]The operation was canceled.", "does not say why"),
    Failure("canceled", "The runner has received a shutdown signal. This can happen when", "memory"),
    Failure("interrupted", "##[error]Process completed with exit code 143.", "rerun the build"),
    Failure("no space left", "failed to register layer: write /opt/rocm/a: no space left on device", "free space"),
    Failure("missing header", "/t/complex.h:8:10: fatal error: 'thrust/complex.h' file not found", "rocthrust-dev"),
    Failure("missing header", "/r/__clang_hip_runtime_wrapper.h:50:10: fatal error: 'cmath' file not found", "libstdc"),
    Failure("git refuses the folder", "fatal: detected dubious ownership in repository at '/w'", "safe.directory"),
    Failure(
        "missing submodule",
        "subprocess.CalledProcessError: Command '['git', 'submodule', 'update', '--init', 'csrc/composable_kernel']' "
        "returned non-zero exit status 128.",
        "submodule update",
    ),
    Failure("no virtual environment", "error: externally-managed-environment", "venv"),
    Failure("interrupted", "ninja: build stopped: interrupted by user.", "rerun the build"),
    Failure("interrupted", "clang++: error: unable to execute command: Interrupt", "rerun the build"),
    Failure(
        "library too large to link", "ld.lld: error: a.o:(.text+0x1): relocation R_X86_64_PC32 out of range", "OPT_DIM"
    ),
    Failure("library too large to link", "relocation truncated to fit: R_X86_64_PC32 against `.hip_fatbin'", "OPT_DIM"),
    Failure("compiler crashed", "clang++: error: unable to execute command: Segmentation fault (core dumped)", "rerun"),
    Failure("compiler crashed", "PLEASE submit a bug report to LLVM and include the crash backtrace", "rerun"),
    Failure(
        "compile error", "/w/a.hip:1:2: error: unused variable 'x' [-Werror,-Wunused-variable]", "supported combination"
    ),
    Failure("refused by the factory", "error: cannot keep compiled kernels: /k: read-only file system", "hint"),
    Failure("link error", "/usr/bin/ld: a.o: undefined reference to `fmha_fwd(int)'", "rebuild"),
    Failure(
        "compile error",
        "/w/include/ck_tile/core.hpp:41:9: error: no matching function for call to 'f'",
        "supported combination",
    ),
    Failure("Python error", "ValueError: invalid literal for int() with base 10: 'eight'", "setup.py"),
]


def test_each_known_failure_has_its_cause_evidence_and_remedy() -> None:
    for failure in FAILURES:
        lines = failure.output.splitlines()
        cause = find_cause(failed(*lines).splitlines())
        assert cause, failure
        assert cause.name == failure.name, failure
        assert (failure.evidence or lines[0]) in cause.evidence, failure
        assert failure.remedy in cause.remedy, failure


def test_every_pattern_has_its_error_word() -> None:
    """A failed build prints error words of its own, so each line is checked alone."""
    assert [failure for failure in FAILURES if not may_show_error(failure.output.splitlines()[0])] == []


def test_a_healthy_log_and_mere_consequences_have_no_cause() -> None:
    for log in (HEALTHY, running(), PREAMBLE, "\n".join(compiles(5)), FOLLOW_ON):
        assert find_cause(log.splitlines()) is None


def test_the_first_specific_cause_wins_over_later_ones() -> None:
    output = ("clang++: error: unable to execute command: Killed", "OSError: [Errno 28] No space left on device")
    cause = find_cause(failed(*output).splitlines())
    assert cause
    assert cause.name == "out of memory"


def test_a_specific_cause_wins_over_an_earlier_generic_one() -> None:
    output = ("/w/a.hip:1:2: error: expected expression", "/w/b.hip:1:10: fatal error: 'Python.h' file not found")
    cause = find_cause(failed(*output).splitlines())
    assert cause
    assert cause.name == "missing header"


def test_the_pass_of_a_crash_wins_over_the_crash() -> None:
    output = (
        "PLEASE submit a bug report to LLVM and include the crash backtrace",
        "Stack dump:",
        '3.\tRunning pass "require<globals-aa>,cgscc(devirt<4>(inline))" on module "x"',
        "clang++: error: clang frontend command failed with exit code 139 (use -v to see invocation)",
    )
    cause = find_cause(failed(*output).splitlines())
    assert cause
    assert cause.name == "runaway inlining"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("error: no kernel archive: of SET in /k", "refused by the factory"),
        ("error: flash-attn 2.8.3 ck on ROCm 7.2 does not support: gfx1030", "arch refused"),
    ],
)
def test_the_hint_of_this_program_is_the_remedy(error: str, name: str) -> None:
    cause = find_cause([error, "hint: run wheelfactory kernels SET"])
    assert cause
    assert (cause.name, cause.remedy) == (name, "run wheelfactory kernels SET")


def test_the_message_that_a_build_failed_is_no_cause() -> None:
    ours = ["error: build failed: build_rocm.sh (exit status 1)", "hint: the full log is /x.log"]
    assert find_cause(ours) is None


def test_long_evidence_is_truncated() -> None:
    cause = find_cause([f"No space left on device {'x' * 10_000}"])
    assert cause
    assert len(cause.evidence) == 500
