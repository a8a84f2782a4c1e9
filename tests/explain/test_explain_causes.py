"""Each known failure, as real logs tell it, and what is no failure."""

from __future__ import annotations

import pytest

from explain.build_logs import FOLLOW_ON, HEALTHY, PREAMBLE, compiles, failed, running
from wheelfactory.explain.causes import find_cause, may_show_error
from wheelfactory.explain.glossary import glossary


def told(name: str, said: str, remedy: str, evidence: str = "") -> object:
    """A row of the table: what a compile or setup.py says; a part of the line that is the evidence."""
    return pytest.param(name, said, remedy, evidence or said.splitlines()[0], id=f"{name}: {said.splitlines()[0][:40]}")


TOLD = [
    told("out of memory", "clang++: error: unable to execute command: Killed", "MAX_JOBS"),
    told(
        "out of memory",
        "c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
        "MAX_JOBS",
    ),
    told("out of memory", "/bin/sh: line 1: 12345 Killed    /opt/rocm/bin/hipcc -O3 -c a.hip -o a.o", "MAX_JOBS"),
    told("out of memory", "virtual memory exhausted: Cannot allocate memory", "MAX_JOBS"),
    told("out of memory", "LLVM ERROR: out of memory\nPLEASE submit a bug report to LLVM", "MAX_JOBS"),
    told("out of memory", "terminate called after throwing an instance of 'std::bad_alloc'", "MAX_JOBS"),
    told("out of memory", "clang++: error: clang frontend command failed due to signal (use -v)", "MAX_JOBS"),
    told("out of memory", 'process "/bin/sh -c pip install ." did not complete: exit code: 137', "MAX_JOBS"),
    told("out of memory", "died with <Signals.SIGKILL: 9>.", "MAX_JOBS"),
    told(
        "arch refused",
        "AssertionError: One of GPU archs of ['gfx1030'] is invalid or not supported by Flash-Attention",
        "GPU_ARCHS",
    ),
    told("arch refused", "clang++: error: invalid target ID 'gfx9942'; format is a processor name", "GPU_ARCHS"),
    told("arch refused", "clang++: error: unsupported HIP gpu architecture: gfx1250", "GPU_ARCHS"),
    told("arch refused", "clang++: error: cannot find ROCm device library for gfx1201; provide its path", "GPU_ARCHS"),
    told("no GPU to ask for its arch", "RuntimeError: No HIP GPUs are available", "GPU_ARCHS=gfx942"),
    told("wrong torch", "ModuleNotFoundError: No module named 'torch'", "--no-build-isolation"),
    told("wrong torch", "OSError: CUDA_HOME environment variable is not set. Please set it.", "ROCm"),
    told("wrong torch", "AttributeError: 'NoneType' object has no attribute 'split'", "FORCE_BUILD"),
    told("wrong torch", "/usr/bin/ld: cannot find -ltorch_hip: No such file or directory", "ROCm"),
    told(
        "wrong torch",
        "ImportError: /v/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2E",
        "another torch",
    ),
    told(
        "ROCm and torch differ",
        "ImportError: libamdhip64.so.6: cannot open shared object file: No such file or directory",
        "major and minor",
    ),
    told(
        "missing submodule",
        "AssertionError: csrc/composable_kernel is missing, please use source distribution or git clone",
        "submodule update",
    ),
    told(
        "missing submodule",
        "python: can't open file '/w/ck_tile/01_fmha/generate.py': [Errno 2] No such file",
        "submodule update",
    ),
    told("missing submodule", "/w/build/a.hip:3:10: fatal error: 'ck_tile/core.hpp' file not found", "submodule"),
    told("missing header", "/t/pybind.h:1:10: fatal error: Python.h: No such file or directory", "python3-dev"),
    told("missing header", "/t/pybind.h:1:10: fatal error: 'Python.h' file not found", "python3-dev"),
    told("missing header", "/t/HIPContext.h:9:10: fatal error: 'hipblas/hipblas.h' file not found", "hipblas-dev"),
    told("missing header", "/t/HIPContext.h:9:10: fatal error: 'hipsparse/hipsparse.h' file not found", "hipsparse"),
    told("missing header", "/t/a.h:9:10: fatal error: 'numa.h' file not found", "package that has this header"),
    told("argument list too long", "OSError: [Errno 7] Argument list too long: '/usr/bin/g++'", "ulimit -s"),
    told("argument list too long", "ninja: fatal: posix_spawn: Argument list too long", "short path"),
    told("no space left", "fatal error: error in backend: IO failure: No space left on device", "make room"),
    told("ROCm incomplete", "clang++: error: cannot find ROCm device library; provide its path", "rocm-device-libs"),
    told("no compiler", "/bin/sh: 1: hipcc: not found", "hipcc"),
    told("no compiler", "error: cannot run: /opt/rocm/bin/hipcc: No such file or directory", "hipcc"),
    told("no compiler", "OSError: ROCM_HOME environment variable is not set. Please set it", "ROCM_PATH"),
    told("no ninja", "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)", "ninja"),
    told("no ninja", "ninja: error: build.ninja:3: unexpected variable", "1.13"),
    told(
        "no network",
        "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)",
        "PIP_INDEX_URL",
    ),
    told("no network", "fatal: unable to access 'https://example.invalid/x.git/': Could not resolve host", "network"),
    told(
        "runaway inlining",
        '4.\tRunning pass "require<profile-summary>,function(invalidate<aa>),cgscc(devirt<4>(inline))" on module',
        "amdgpu-early-inline-all=false",
        evidence="Running pass",
    ),
    told(
        "time limit",
        "##[error]The job running on runner GitHub Actions 7 has exceeded the maximum execution time of 360 minutes.",
        "--shard",
    ),
    told("time limit", "##[error]The action 'Compile kernels' has timed out after 350 minutes.", "--shard"),
    told("canceled", "##[error]The operation was canceled.", "does not say by what"),
    told("canceled", "The runner has received a shutdown signal. This can happen when", "memory"),
    told("interrupted", "##[error]Process completed with exit code 143.", "start it again"),
    told("no space left", "failed to register layer: write /opt/rocm/a: no space left on device", "make room"),
    told("missing header", "/t/complex.h:8:10: fatal error: 'thrust/complex.h' file not found", "rocthrust-dev"),
    told("missing header", "/r/__clang_hip_runtime_wrapper.h:50:10: fatal error: 'cmath' file not found", "libstdc"),
    told("git refuses the folder", "fatal: detected dubious ownership in repository at '/w'", "safe.directory"),
    told(
        "missing submodule",
        "subprocess.CalledProcessError: Command '['git', 'submodule', 'update', '--init', 'csrc/composable_kernel']' "
        "returned non-zero exit status 128.",
        "submodule update",
    ),
    told("no virtual environment", "error: externally-managed-environment", "venv"),
    told("interrupted", "ninja: build stopped: interrupted by user.", "start it again"),
    told("interrupted", "clang++: error: unable to execute command: Interrupt", "start it again"),
    told(
        "library too large to link", "ld.lld: error: a.o:(.text+0x1): relocation R_X86_64_PC32 out of range", "OPT_DIM"
    ),
    told("library too large to link", "relocation truncated to fit: R_X86_64_PC32 against `.hip_fatbin'", "OPT_DIM"),
    told("compiler crashed", "clang++: error: unable to execute command: Segmentation fault (core dumped)", "again"),
    told("compiler crashed", "PLEASE submit a bug report to LLVM and include the crash backtrace", "again"),
    told("compile error", "/w/a.hip:1:2: error: unused variable 'x' [-Werror,-Wunused-variable]", "fit together"),
    told("refused by the factory", "error: cannot keep compiled kernels: /k: read-only file system", "hint"),
    told("link error", "/usr/bin/ld: a.o: undefined reference to `fmha_fwd(int)'", "build again"),
    told(
        "compile error", "/w/include/ck_tile/core.hpp:41:9: error: no matching function for call to 'f'", "fit together"
    ),
    told("Python error", "ValueError: invalid literal for int() with base 10: 'eight'", "setup.py"),
]


@pytest.mark.parametrize(("name", "said", "remedy", "evidence"), TOLD)
def test_a_known_failure_is_named_with_its_line_and_its_remedy(
    name: str, said: str, remedy: str, evidence: str
) -> None:
    cause = find_cause(failed(*said.splitlines()).splitlines())
    assert cause
    assert cause.name == name
    assert evidence in cause.evidence
    assert remedy in cause.remedy


def test_every_known_failure_is_among_these() -> None:
    names = {parameter.values[0] for parameter in TOLD}  # type: ignore[attr-defined]
    assert names == {known.name for known in (*glossary().causes, *glossary().generic_causes)}


def test_no_word_of_trouble_is_missing_that_a_pattern_needs() -> None:
    for parameter in TOLD:
        said = parameter.values[1]  # type: ignore[attr-defined]
        assert may_show_error(said.splitlines()[0]), said


@pytest.mark.parametrize(
    "log", [HEALTHY, running(), PREAMBLE, "\n".join(compiles(5))], ids=["whole", "running", "preamble", "compiles"]
)
def test_a_log_without_failure_has_no_cause(log: str) -> None:
    assert find_cause(log.splitlines()) is None


def test_what_only_follows_from_a_cause_is_none() -> None:
    assert find_cause(FOLLOW_ON.splitlines()) is None


def test_the_first_real_cause_counts() -> None:
    said = ("clang++: error: unable to execute command: Killed", "OSError: [Errno 28] No space left on device")
    cause = find_cause(failed(*said).splitlines())
    assert cause
    assert cause.name == "out of memory"


def test_a_cause_that_tells_by_itself_comes_before_an_error_that_may_follow_from_it() -> None:
    said = ("/w/a.hip:1:2: error: expected expression", "/w/b.hip:1:10: fatal error: 'Python.h' file not found")
    cause = find_cause(failed(*said).splitlines())
    assert cause
    assert cause.name == "missing header"


def test_where_a_crash_happened_counts_more_than_that_the_compiler_crashed() -> None:
    said = (
        "PLEASE submit a bug report to LLVM and include the crash backtrace",
        "Stack dump:",
        '3.\tRunning pass "require<globals-aa>,cgscc(devirt<4>(inline))" on module "x"',
        "clang++: error: clang frontend command failed with exit code 139 (use -v to see invocation)",
    )
    cause = find_cause(failed(*said).splitlines())
    assert cause
    assert cause.name == "runaway inlining"


def test_the_hint_that_this_program_gave_is_the_remedy() -> None:
    refused = ["error: no kernel archive: of SET in /k", "hint: make one: wheelfactory kernels SET"]
    cause = find_cause(refused)
    assert cause
    assert (cause.name, cause.remedy) == ("refused by the factory", "make one: wheelfactory kernels SET")


def test_a_hint_about_a_kind_that_is_known_is_the_remedy_too() -> None:
    refused = ["error: flash-attn 2.8.3 ck on ROCm 7.2 does not support: gfx1030", "hint: supported: gfx90a"]
    cause = find_cause(refused)
    assert cause
    assert (cause.name, cause.remedy) == ("arch refused", "supported: gfx90a")


def test_that_a_build_failed_is_not_why() -> None:
    ours = ["error: build failed: build_rocm.sh (exit status 1)", "hint: the full log is /x.log"]
    assert find_cause(ours) is None


def test_lines_may_have_colours_times_and_indentation() -> None:
    raw = "2026-11-21T19:00:00.1Z   \x1b[31mclang++: error: unable to execute command: Killed\x1b[0m"
    cause = find_cause([raw])
    assert cause
    assert cause.evidence == "clang++: error: unable to execute command: Killed"


def test_a_very_long_line_is_cut_to_what_a_person_reads() -> None:
    cause = find_cause([f"No space left on device {'x' * 10_000}"])
    assert cause
    assert len(cause.evidence) == 500
