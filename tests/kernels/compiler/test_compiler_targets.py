"""What is compiled for an arch and for the host: which sources have code for it, and with which flags and options."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfactory.kernels.compiler.targets import (
    HOST,
    KernelName,
    compiled_sources,
    has_code,
    is_empty,
    parse_kernel_name,
    read_guard,
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


ALL_ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1150", "gfx1201")
TOP = '#include "fmha_fwd.hpp"\n// why\n'
GUARD = "#if !defined(__HIP_DEVICE_COMPILE__) || (defined(__gfx9__))\n"


def read(folder: Path, text: str) -> str:
    path = folder / "kernel.hip"
    path.write_text(text)
    return read_guard(str(path))


def test_a_guard_encloses_all_code_of_a_source(tmp_path: Path) -> None:
    text = f"{GUARD}#ifdef X\nint x;\n#else\n#endif\nint y;\n#endif\n"
    assert read(tmp_path, TOP + text) == "defined(__gfx9__)"
    assert read(tmp_path, "#define FAST 1\n/* two\nlines */" + TOP + text + "// end\n\n") == "defined(__gfx9__)"


@pytest.mark.parametrize(
    "text",
    [
        "int x;\n",
        f"{GUARD}#endif\nint x;\n",
        f"int x;\n{GUARD}#endif\n",
        f"{GUARD}#else\nint x;\n#endif\n",
        f"{GUARD}#endif\n#if 1\nint x;\n#endif\n",
        f"{GUARD}int x;\n",
        "#if defined(__gfx9__)\nint x;\n#endif\n",
        f"#pragma once\n{GUARD}#endif\n",
    ],
    ids=["no guard", "after", "before", "else", "a second", "no end", "host code too", "an unknown directive"],
)
def test_anything_else_is_no_guard(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, TOP + text) == ""


@pytest.mark.parametrize(
    ("guard", "archs"),
    [
        ("", ALL_ARCHS),
        ("defined(__gfx9__)", ("gfx90a", "gfx942", "gfx950")),
        ("defined(__gfx950__)", ("gfx950",)),
        ("defined(__gfx9__) && !defined(__gfx950__)", ("gfx90a", "gfx942")),
        ("defined(__gfx11__)", ("gfx1100", "gfx1150")),
        ("defined(__gfx115__)", ("gfx1150",)),
        ("defined(__gfx12__)", ("gfx1201",)),
        ("defined(__gfx942__) || defined(__gfx12__) && defined(__gfx11__)", ("gfx942",)),
        ("(defined(__gfx942__)||defined(__gfx12__))&&!defined(__gfx11__)", ("gfx942", "gfx1201")),
        ("defined(__gfx9__) && defined(OTHER)", ALL_ARCHS),
        ("__gfx9__ > 1", ALL_ARCHS),
        ("defined(__gfx9__", ALL_ARCHS),
        ("(defined(__gfx9__)", ALL_ARCHS),
        ("defined(__gfx9__) defined(__gfx9__)", ALL_ARCHS),
    ],
)
def test_which_archs_a_guard_has_code_for(guard: str, archs: tuple[str, ...]) -> None:
    assert tuple(arch for arch in ALL_ARCHS if has_code(guard, arch)) == archs


def test_only_device_code_of_one_arch_can_be_empty() -> None:
    guard = "defined(__gfx12__)"
    assert is_empty(guard, ("gfx942",))
    assert not is_empty(guard, ("gfx1201",))
    assert not is_empty(guard, ("host",))
    assert not is_empty(guard, ("gfx942", "host"))
