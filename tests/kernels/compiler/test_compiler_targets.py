"""What is compiled for an arch and for the host: which sources, with which flags and options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfactory.kernels.compiler.targets import (
    HOST,
    KernelName,
    compiled_sources,
    parse_kernel_name,
    target_flags,
    target_options,
)

ARCHS = ("gfx90a", "gfx942")
DEVICE, HOST_CODE, WHOLE = ("gfx942",), (HOST,), ("gfx90a", "gfx942", HOST)
FLAGS = ["-O3", "--offload-arch=gfx90a", "-D_GLIBCXX_USE_CXX11_ABI=0", "-DUSE_ROCM=1", "--offload-arch=gfx942"]
PLACEHOLDER = "/scratch/placeholder"


# sources


def test_a_source_that_selects_kernels_is_compiled_for_the_host_only() -> None:
    names = ["fmha_fwd_d64_fp16_batch", "fmha_bwd_api", "fmha_bwd_d128_bf16", "fmha_fwd_splitkv_api_gfx9"]
    assert compiled_sources(names, DEVICE) == ["fmha_bwd_d128_bf16", "fmha_fwd_d64_fp16_batch"]
    assert compiled_sources(names, HOST_CODE) == compiled_sources(names, WHOLE) == sorted(names)


def test_a_source_of_an_unknown_name_is_compiled_for_every_target() -> None:
    assert compiled_sources(["fmha_"], DEVICE) == compiled_sources(["fmha_"], HOST_CODE) == ["fmha_"]


# flags


def test_device_code_depends_neither_on_other_archs_nor_on_the_abi_of_the_host() -> None:
    assert target_flags(FLAGS, DEVICE) == ["-O3", "-DUSE_ROCM=1"]


@pytest.mark.parametrize("targets", [HOST_CODE, WHOLE])
def test_host_code_depends_on_its_abi_and_not_on_archs(targets: tuple[str, ...]) -> None:
    assert target_flags(FLAGS, targets) == ["-O3", "-D_GLIBCXX_USE_CXX11_ABI=0", "-DUSE_ROCM=1"]


# options


def test_device_code_is_compiled_for_one_arch_into_a_bare_code_object() -> None:
    options = target_options(DEVICE, ARCHS, PLACEHOLDER)
    assert options == ["--offload-arch=gfx942", "--cuda-device-only", "--no-gpu-bundle-output"]


def test_host_code_embeds_the_placeholder() -> None:
    options = target_options(HOST_CODE, ARCHS, PLACEHOLDER)
    assert options[:2] == ["--offload-arch=gfx90a", "--cuda-host-only"]
    assert options[2:] == ["-Xclang", "-fcuda-include-gpubinary", "-Xclang", PLACEHOLDER]


def test_a_kernel_name_has_operation_head_dim_options_and_arch() -> None:
    for name, parts in (
        ("fmha_fwd_d64_fp16_batch_b128x64", KernelName("fwd", "64", "fp16_batch_b128x64", "")),
        ("fmha_fwd_splitkv_combine_d128_bf16_b32", KernelName("fwd_splitkv_combine", "128", "bf16_b32", "")),
        ("fmha_bwd_dot_do_o_d32_bf16_b64_gfx9", KernelName("bwd_dot_do_o", "32", "bf16_b64", "gfx9")),
        ("fmha_fwd_d192x128_fp8bf16_group_gfx950", KernelName("fwd", "192x128", "fp8bf16_group", "gfx950")),
        ("fmha_fwd_d64", KernelName("fwd", "64", "", "")),
    ):
        found = parse_kernel_name(name)
        assert found == parts
        assert not found.is_api
        assert found.type == parts.rest.partition("_")[0]


def test_other_names_do_not_parse() -> None:
    for name in ("", "flash_api", "mha_bwd", "fmha_fwd", "fmha_fwd_d", "fmha_fwd_dx64_bf16", "fmha_Fwd_d64_bf16"):
        assert parse_kernel_name(name) is None


@given(st.text("fmha_bwdxgo0129", max_size=80))
def test_the_parts_of_any_name_make_the_name_again(tail: str) -> None:
    name = f"fmha_fwd_d64_bf16_{tail}"
    found = parse_kernel_name(name)
    assert found
    assert name == f"fmha_fwd_d64_{found.rest}" + (f"_{found.arch}" if found.arch else "")
