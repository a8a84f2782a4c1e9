"""Each known failure as real logs show it, lines that are no failure, and the hint of an error with a log."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from explain.build_logs import FOLLOW_ON, HEALTHY, PREAMBLE, compiles, failed, rows, running
from wheelfactory.commands.options import find_hint
from wheelfactory.core.errors import BuildError, FactoryError, ProgramError
from wheelfactory.explain.causes import find_cause, may_show_error
from wheelfactory.explain.log_lines import MAX_LINE_BYTES

FAILURES = r"""
out of memory | MAX_JOBS
    clang++: error: unable to execute command: Killed
    c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.
    /bin/sh: line 1: 12345 Killed    /opt/rocm/bin/hipcc -O3 -c a.hip -o a.o
    virtual memory exhausted: Cannot allocate memory
    LLVM ERROR: out of memory\nPLEASE submit a bug report to LLVM
    terminate called after throwing an instance of 'std::bad_alloc'
    clang++: error: clang frontend command failed due to signal (use -v)
    process "/bin/sh -c pip install ." did not complete: exit code: 137
    died with <Signals.SIGKILL: 9>.
    nvcc error   : 'cicc' died due to signal 9 (Kill signal)
    ptxas fatal   : Memory allocation failure
arch refused | GPU_ARCHS
    AssertionError: One of GPU archs of ['gfx1030'] is invalid or not supported by Flash-Attention
    clang++: error: invalid target ID 'gfx9942'; format is a processor name
    clang++: error: unsupported HIP gpu architecture: gfx1250
    clang++: error: cannot find ROCm device library for gfx1201; provide its path
no GPU to ask for its arch | GPU_ARCHS=gfx942 | RuntimeError: No HIP GPUs are available
wrong torch | --no-build-isolation | ModuleNotFoundError: No module named 'torch'
CUDA and torch differ | CUDA_HOME | The detected CUDA version (13.0) mismatches the version that was used
CUDA too old | nvcc -V | RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.
host compiler too new | CXX=g++-N
    /usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later
wrong torch | FORCE_BUILD | AttributeError: 'NoneType' object has no attribute 'split'
wrong torch | ROCm | /usr/bin/ld: cannot find -ltorch_hip: No such file or directory
ROCm and torch differ | major and minor | RuntimeError: HIP version 7.1 does not match that of torch (7.2)
missing submodule | submodule update
    AssertionError: csrc/composable_kernel is missing, please use source distribution or git clone
    python: can't open file '/w/ck_tile/01_fmha/generate.py': [Errno 2] No such file
    subprocess.CalledProcessError: Command '['git', 'submodule', 'update', '--init', 'csrc/ck']' returned non-zero
missing submodule | submodule | /w/build/a.hip:3:10: fatal error: 'ck_tile/core.hpp' file not found
missing header | python3-dev
    /t/pybind.h:1:10: fatal error: Python.h: No such file or directory
    /t/pybind.h:1:10: fatal error: 'Python.h' file not found
missing header | hipblas-dev | /t/HIPContext.h:9:10: fatal error: 'hipblas/hipblas.h' file not found
missing header | hipsparse | /t/HIPContext.h:9:10: fatal error: 'hipsparse/hipsparse.h' file not found
missing header | package with this header | /t/a.h:9:10: fatal error: 'numa.h' file not found
argument list too long | ulimit -s | OSError: [Errno 7] Argument list too long: '/usr/bin/g++'
argument list too long | short path | ninja: fatal: posix_spawn: Argument list too long
no space left | free space
    fatal error: error in backend: IO failure: No space left on device
    failed to register layer: write /opt/rocm/a: no space left on device
ROCm incomplete | rocm-device-libs | clang++: error: cannot find ROCm device library; provide its path
no compiler | hipcc
    /bin/sh: 1: hipcc: not found
    error: cannot run: /opt/rocm/bin/hipcc: No such file or directory
no compiler | ROCM_PATH | OSError: ROCM_HOME environment variable is not set. Please set it
no ninja | ninja | RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)
no ninja | 1.13 | ninja: error: build.ninja:3: unexpected variable
no network | network | fatal: unable to access 'https://example.invalid/x.git/': Could not resolve host
runaway inlining | amdgpu-early-inline-all=false
    Running pass "require<profile-summary>,function(invalidate<aa>),cgscc(devirt<4>(inline))" on module
time limit | --shard
    ##[error]The job running on runner GitHub Actions 7 has exceeded the maximum execution time of 360 minutes.
    ##[error]The action 'Compile kernels' has timed out after 350 minutes.
canceled | does not say why | ##[error]The operation was canceled.
canceled | memory | The runner has received a shutdown signal. This can happen when
interrupted | rerun the build
    ##[error]Process completed with exit code 143.
    ninja: build stopped: interrupted by user.
    clang++: error: unable to execute command: Interrupt
missing header | rocthrust-dev | /t/complex.h:8:10: fatal error: 'thrust/complex.h' file not found
missing header | libstdc | /r/__clang_hip_runtime_wrapper.h:50:10: fatal error: 'cmath' file not found
git refuses the folder | safe.directory | fatal: detected dubious ownership in repository at '/w'
no virtual environment | venv | error: externally-managed-environment
library too large to link | OPT_DIM
    ld.lld: error: a.o:(.text+0x1): relocation R_X86_64_PC32 out of range
    relocation truncated to fit: R_X86_64_PC32 against `.hip_fatbin'
compiler crashed | rerun
    clang++: error: unable to execute command: Segmentation fault (core dumped)
    PLEASE submit a bug report to LLVM and include the crash backtrace
compile error | supported combination
    /w/a.hip:1:2: error: unused variable 'x' [-Werror,-Wunused-variable]
    /w/include/ck_tile/core.hpp:41:9: error: no matching function for call to 'f'
refused by the factory | hint | error: cannot keep compiled kernels: /k: read-only file system
link error | rebuild | /usr/bin/ld: a.o: undefined reference to `fmha_fwd(int)'
Python error | setup.py | ValueError: invalid literal for int() with base 10: 'eight'
"""
"""The cause of a failed build, a part of the remedy, and what the build prints."""


@pytest.mark.parametrize(("name", "remedy", "output"), rows(FAILURES, 3))
def test_each_known_failure_has_its_cause_evidence_and_remedy(name: str, remedy: str, output: str) -> None:
    """A failed build prints error words of its own, so whether the line has one is checked alone."""
    first, *others = output.splitlines()
    cause = find_cause(failed(first, *others).splitlines())
    assert cause
    assert (cause.name, cause.evidence) == (name, first)
    assert remedy in cause.remedy
    assert may_show_error(first)


def test_a_healthy_log_and_mere_consequences_have_no_cause() -> None:
    for log in (HEALTHY, running(), PREAMBLE, "\n".join(compiles(5)), FOLLOW_ON):
        assert find_cause(log.splitlines()) is None


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("out of memory", ["clang++: error: unable to execute command: Killed", "OSError: No space left on device"]),
        (
            "missing header",
            ["/w/a.hip:1: error: expected x", "/w/b.hip:1:1: fatal error: 'Python.h' file not found"],
        ),
        (
            "runaway inlining",
            [
                "PLEASE submit a bug report to LLVM and include the crash backtrace",
                '3.\tRunning pass "require<globals-aa>,cgscc(devirt<4>(inline))" on module "x"',
                "clang++: error: clang frontend command failed with exit code 139 (use -v to see invocation)",
            ],
        ),
    ],
    ids=["the first specific one", "a specific one before a generic one", "the pass of a crash"],
)
def test_of_several_causes_one_wins(name: str, output: list[str]) -> None:
    cause = find_cause(failed(*output).splitlines())
    assert cause
    assert cause.name == name


PROBE = "ModuleNotFoundError: No module named 'flash_attn'"
WARNING = "UserWarning: Graph break due to unsupported builtin flash_attn_2_cuda.PyCapsule.fwd."


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ((PROBE, "Memory access fault by GPU node-1"), "GPU fault"),
        ((WARNING, PROBE, "HIP out of memory"), "GPU memory is full"),
        ((WARNING, PROBE), "no flash-attn"),
        ((PROBE, WARNING), "no flash-attn"),
        (("UserWarning: HIP out of memory",), None),
    ],
)
def test_an_error_counts_more_than_what_a_program_survives(lines: tuple[str, ...], name: str | None) -> None:
    cause = find_cause(lines)
    assert (cause and cause.name) == name


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


KILLED = "c++: fatal error: Killed signal terminated program cc1plus\n"
REFUSED = "AssertionError: One of GPU archs of ['gfx9999'] is invalid or not supported by Flash-Attention\n"
STARVED = "out of memory: the container had 0.2 GiB"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "cell.log"


def test_an_error_without_a_log_has_its_own() -> None:
    assert find_hint(FactoryError("no room", "here", "make some")) == "make some"
    assert find_hint(BuildError("no Python", "here", "install one")) == "install one"


def test_a_failed_build_has_the_cause_its_remedy_and_the_log(log: Path) -> None:
    log.write_text(f"one\n{REFUSED}two\n")
    hint = find_hint(ProgramError("build failed", "build_rocm.sh", "", log=log))
    assert hint.startswith(f"arch refused ({REFUSED.strip()}): ")
    assert hint.endswith(f"; the full log is {log}")


def test_a_log_that_tells_no_cause_is_named_alone(log: Path) -> None:
    log.write_text("nothing\n")
    assert find_hint(ProgramError("build failed", "build_rocm.sh", "", log=log)) == f"the full log is {log}"


@pytest.mark.parametrize("text", ["nothing\n", KILLED], ids=["no cause", "want of memory"])
def test_want_of_memory_is_told_by_the_error_that_knows_how_much_there_was(text: str, log: Path) -> None:
    log.write_text(text)
    error = BuildError("build failed", "build_rocm.sh", STARVED, log=log)
    assert find_hint(error) == f"{STARVED}; the full log is {log}"


def test_another_cause_comes_before_it(log: Path) -> None:
    log.write_text(REFUSED)
    error = BuildError("build failed", "build_rocm.sh", STARVED, log=log)
    assert find_hint(error).startswith("arch refused (")


def test_a_log_that_somebody_removed_leaves_the_error_its_own(log: Path) -> None:
    assert find_hint(BuildError("build failed", "build_rocm.sh", STARVED, log=log)) == STARVED


def test_a_hostile_line_costs_little_time() -> None:
    line = ("error: CK not support " * MAX_LINE_BYTES)[:MAX_LINE_BYTES]
    start = process_time()
    find_cause([line])
    assert process_time() - start < 1, "CPU seconds; without a limit some patterns take minutes"


def test_the_cause_is_found_at_both_ends_of_a_long_line() -> None:
    command = "'-DX'," * 2000
    for line in (
        f"error: invalid target ID 'gfx9942'; {command}",
        f"Command '[{command}]' died with <Signals.SIGKILL: 9>.",
    ):
        assert find_cause([line]), line[:40]
