"""The flags of upstream's command line that reach a generated kernel."""

from __future__ import annotations

import shlex

import pytest

from wheelfactory.kernels.compiler.flags import (
    is_kernel_source,
    kernel_command,
    kernel_flags,
    kernel_name,
    rocm_root,
    source_root,
)

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
