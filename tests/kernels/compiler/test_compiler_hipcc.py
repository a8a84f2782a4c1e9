"""The identity of a compiler, by its content, and the flags of upstream's commands that reach a generated kernel."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from wheelfactory.kernels.compiler.hipcc import (
    Compiler,
    is_kernel_source,
    kernel_command,
    kernel_flags,
    kernel_name,
    read_compiler,
    rocm_root,
    source_root,
)

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


ROOT, ROCM = "/w/flash_attn-2.8.3", "/opt/rocm"
SOURCE = f"{ROOT}/build/fmha_fwd_d64_fp16_batch.hip"

HEADERS = f"""
-I{ROOT}/csrc/composable_kernel/include -I{ROOT}/csrc/composable_kernel/library/include
-I{ROOT}/csrc/composable_kernel/example/ck_tile/01_fmha
"""
KERNEL = """
-fPIC -D__HIP_PLATFORM_AMD__=1 -DUSE_ROCM=1 -DCUDA_HAS_FP16=1 --offload-arch=gfx90a --offload-arch=gfx942 -O3 -std=c++17
-DCK_ENABLE_BF16 -mllvm --lsr-drop-solution=1 -fno-offload-uniform-block -mllvm -amdgpu-early-inline-all=true
-mllvm -amdgpu-function-calls=false
"""
TORCH_2_5 = """
-I/venv/lib/python3.11/site-packages/torch/include -isystem /usr/include/python3.11 -DTORCH_API_INCLUDE_EXTENSION_H
-DPYBIND11_COMPILER_TYPE='"_gcc"' -DPYBIND11_BUILD_ABI='"_cxxabi1011"' -DTORCH_EXTENSION_NAME=flash_attn_2_cuda
-D_GLIBCXX_USE_CXX11_ABI=1
"""
TORCH_2_9 = """
-I/other/lib/python3.12/site-packages/torch/include -I /other/include/python3.12 -DTORCH_API_INCLUDE_EXTENSION_H
-DTORCH_EXTENSION_NAME=flash_attn_2_cuda -DHIP_ENABLE_WARP_SYNC_BUILTINS=1 -DHIPIFY_V2
"""


def flags(*texts: str, tame: bool = False) -> list[str]:
    return kernel_flags(shlex.split(" ".join(texts)), ROOT, ROCM, disable_early_inline=tame)


# which compiles are kernels


def test_a_generated_source_is_a_kernel_and_no_other() -> None:
    for name, extension in (("fmha_fwd_d64_fp16", "hip"), ("fmha_bwd_api", "cu"), ("fmha_fwd_splitkv_d32_bf16", "cpp")):
        source = f"/w/build/{name}.{extension}"
        assert is_kernel_source(source)
        assert (kernel_name(source), source_root(source)) == (name, "/w")
    for word in (
        "/w/csrc/fmha_fwd.hip",  # not in the folder of generated sources
        "/w/build/flash_api.hip",  # not named as one of them
        "/w/build/fmha_fwd.o",
        "-I/w/build/fmha_fwd.hip",
    ):
        assert not is_kernel_source(word)


# flags


def test_two_torches_and_pythons_give_the_same_flags() -> None:
    assert flags(HEADERS, TORCH_2_5, KERNEL) == flags(HEADERS, KERNEL, TORCH_2_9)
    assert flags(TORCH_2_5, KERNEL) == shlex.split(KERNEL)


def test_the_folder_of_the_sources_does_not_matter() -> None:
    elsewhere = HEADERS.replace(ROOT, "/elsewhere")
    assert kernel_flags(shlex.split(elsewhere), "/elsewhere", ROCM, disable_early_inline=False) == flags(HEADERS)
    assert flags(HEADERS)[0] == "-Icsrc/composable_kernel/include"


@pytest.mark.parametrize(
    "text", ["-I/opt/rocm-other/include", f"-I{ROOT}-2/include", "-isystem /usr/include", "-iquote /a"]
)
def test_only_header_folders_of_the_release_and_rocm_are_kept(text: str) -> None:
    assert flags(text) == []


def test_flags_that_may_change_the_object_are_kept_with_their_values() -> None:
    for kept in (
        "--offload-arch gfx942 -imacros x.h -O3 -ffast-math -Unever -include hip/hip_runtime.h",
        "-I/opt/rocm/include -DCK_USE_XDL -D_GLIBCXX_USE_CXX11_ABI=0 -mllvm -amdgpu-coerce-illegal-types=1",
    ):
        assert flags(kept) == kept.split()


def test_source_output_and_depfile_are_dropped() -> None:
    assert flags(f"-c {SOURCE} -o a.o -MD -MF a.d -O3") == ["-O3"]


# the pair that makes a compiler run away


def test_disabling_early_inlining_changes_no_other_flag() -> None:
    wild, tame = flags(KERNEL), flags(KERNEL, tame=True)
    different = [(one, other) for one, other in zip(wild, tame, strict=True) if one != other]
    assert different == [("-amdgpu-early-inline-all=true", "-amdgpu-early-inline-all=false")]


# the command


def test_the_command_names_the_source_as_seen_from_its_root() -> None:
    command = kernel_command("/opt/rocm/bin/hipcc", ["-O3"], SOURCE, "/b/a.o")
    assert command[0] == "/opt/rocm/bin/hipcc"
    assert command[-5:] == ["hip", "-c", "build/fmha_fwd_d64_fp16_batch.hip", "-o", "/b/a.o"]
    assert rocm_root(command[0]) == "/opt/rocm"


def test_the_compilation_unit_is_named_after_the_source_alone() -> None:
    def cuid(source: str, *flags: str) -> str:
        return next(word for word in kernel_command("hipcc", flags, source, "a.o") if word.startswith("-cuid="))

    assert cuid(SOURCE) == cuid("/elsewhere/build/fmha_fwd_d64_fp16_batch.cu", "-O3")
    assert cuid(SOURCE) != cuid(SOURCE.replace("batch", "group"))
