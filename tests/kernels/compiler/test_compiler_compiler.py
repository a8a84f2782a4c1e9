"""The identity of a compiler, by its content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wheelfactory.kernels.compiler.compiler import Compiler, read_compiler

AMD = "AMD clang version 19.0.0git (https://github.com/RadeonOpenCompute/llvm-project roc-6.4.3 25224)"
DEBIAN = "Debian clang version 21.1.8 (3+b1)"


def rocm(folder: Path, says: str = AMD) -> Path:
    """A folder as ROCm's: hipcc as a script in front of a clang, which is a link to one with a version in its name."""
    files = {
        "lib/llvm/bin/clang-19": "clang",
        "lib/llvm/bin/lld": "lld",
        "lib/llvm/bin/clang-linker-wrapper": "wrapper",
        "lib/llvm/bin/llvm-offload-binary": "packager",
        "lib/llvm/lib/libLLVM.so.19.0": "llvm",
        "lib/x86_64-linux-gnu/libLLVM.so.19.1": "llvm",
        "lib/x86_64-linux-gnu/libLLVM.so.20.1": "of another",
        "lib/llvm/lib/clang/19/lib/amdgcn/bitcode/ockl.bc": "ockl",
        "amdgcn/bitcode/ocml.bc": "ocml",
        "bin/hipcc": f"#!/bin/sh\necho 'HIP version: 6.4.43484'\necho '{says}'\necho 'InstalledDir: /nowhere'\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "lib/llvm/bin/clang++").symlink_to("clang-19")
    (folder / "llvm").symlink_to("lib/llvm")
    (folder / "bin/hipcc").chmod(0o755)
    return folder


def read(folder: Path, **environ: str) -> Compiler:
    return read_compiler(str(folder / "bin/hipcc"), {"PATH": os.environ["PATH"], **environ})


def test_installed_again_elsewhere_at_another_time_it_is_the_same(tmp_path: Path) -> None:
    one, other = rocm(tmp_path / "rocm-6.4.3"), rocm(tmp_path / "opt/rocm")
    for path in other.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert read(one) == read(other)


@pytest.mark.parametrize(
    "name",
    [
        *("bin/hipcc", "lib/llvm/bin/clang-19", "lib/llvm/bin/lld", "amdgcn/bitcode/ocml.bc"),
        *("lib/llvm/lib/clang/19/lib/amdgcn/bitcode/ockl.bc", "lib/llvm/lib/libLLVM.so.19.0"),
        *("lib/x86_64-linux-gnu/libLLVM.so.19.1", "lib/llvm/bin/clang-linker-wrapper"),
        *("lib/llvm/bin/llvm-offload-binary", "lib/llvm/bin/rocm.cfg"),
        "lib/llvm/lib/clang/19/include/__clang_hip_math.h",
    ],
)
def test_one_byte_more_in_what_makes_objects_and_it_is_another(name: str, tmp_path: Path) -> None:
    folder = rocm(tmp_path)
    before = read(folder).content
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a") as file:
        file.write("\n")
    assert read(folder).content != before


def test_a_configuration_file_that_changes_its_defaults_makes_it_another(tmp_path: Path) -> None:
    """Such as `--offload-new-driver`, which is then in no command line."""
    configuration = tmp_path / "user/clang++.cfg"
    configuration.parent.mkdir()
    configuration.write_text("-O3\n")
    folder = rocm(tmp_path / "rocm", says=f"{AMD}\nConfiguration file: {configuration}")
    before = read(folder).content
    configuration.write_text("--offload-new-driver\n")
    assert read(folder).content != before


def test_a_clang_that_the_environment_names_is_the_one(tmp_path: Path) -> None:
    folder = rocm(tmp_path / "rocm")
    other = rocm(tmp_path / "other") / "llvm/bin"
    (other / "lld").write_text("another")
    assert read(folder, HIP_CLANG_PATH=str(other)).content != read(folder).content
    hipcc = tmp_path / "bin/hipcc"
    hipcc.parent.mkdir()
    hipcc.write_text("#!/bin/sh\necho HIP version: 7.2\n")
    hipcc.chmod(0o755)
    found = read(tmp_path)
    assert (found.version, found.llvm) == ("HIP version: 7.2", 0), "of hipcc where no clang is found"


@pytest.mark.parametrize(
    ("says", "version", "llvm", "amd"),
    [
        (AMD, "AMD clang version 19.0.0git", 19, True),
        (DEBIAN, "Debian clang version 21.1.8", 21, False),
        ("clang version 18.1.3", "clang version 18.1.3", 18, False),
    ],
)
def test_whose_it_is_and_of_which_llvm(says: str, version: str, llvm: int, amd: bool, tmp_path: Path) -> None:
    found = read(rocm(tmp_path, says))
    assert (found.version, found.llvm, found.amd) == (version, llvm, amd)


@pytest.mark.parametrize(
    ("llvm", "amd", "runs_away"),
    [(17, False, False), (18, False, True), (21, False, True), (19, True, False), (22, True, False), (23, True, True)],
)
def test_which_compilers_run_away_on_upstreams_flags(llvm: int, amd: bool, runs_away: bool) -> None:
    assert Compiler("", llvm, amd, "").has_runaway_inlining is runs_away


def test_the_same_compiler_with_another_c_library_is_another(tmp_path: Path) -> None:
    folder = rocm(tmp_path)
    hipcc = folder / "bin/hipcc"
    hipcc.write_text(f'{hipcc.read_text()}[ "$GLIBC" ] && echo "#define __GLIBC_MINOR__ $GLIBC"\n')
    assert read(folder, GLIBC="35").content != read(folder, GLIBC="39").content
    assert read(folder, GLIBC="35").content == read(folder, GLIBC="35").content
