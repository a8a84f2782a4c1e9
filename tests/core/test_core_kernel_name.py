"""Names of generated kernel sources, in every form that a release uses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wheelfactory.core.kernel_name import KernelName, parse_kernel_name


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


def test_an_api_source_has_an_operation_and_no_head_dim() -> None:
    for name, operation, arch in (
        ("fmha_bwd_api", "bwd", ""),
        ("fmha_fwd_splitkv_api", "fwd_splitkv", ""),
        ("fmha_fwd_api_gfx12", "fwd", "gfx12"),
    ):
        found = parse_kernel_name(name)
        assert found
        assert (found.is_api, found.type, found.operation, found.arch) == (True, "", operation, arch)


def test_other_names_do_not_parse() -> None:
    for name in (
        "",
        "flash_api",
        "mha_bwd",
        "fmha_",
        "fmha_fwd",
        "fmha_fwd_d",
        "fmha_fwd_dx64_bf16",
        "fmha_Fwd_d64_bf16",
    ):
        assert parse_kernel_name(name) is None


def test_a_head_dim_has_at_most_four_digits() -> None:
    assert parse_kernel_name(f"fmha_fwd_d{'9' * 5000}_fp16") is None


@given(st.text("fmha_bwdxgo0129", max_size=80))
def test_the_parts_of_any_name_make_the_name_again(tail: str) -> None:
    name = f"fmha_fwd_d64_bf16_{tail}"
    found = parse_kernel_name(name)
    assert found
    assert name == f"fmha_fwd_d64_{found.rest}" + (f"_{found.arch}" if found.arch else "")
