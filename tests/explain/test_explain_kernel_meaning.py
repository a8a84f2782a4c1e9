"""Names of generated kernels, explained by upstream's naming scheme."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explain.build_logs import KERNEL_283, KERNEL_MAIN
from wheelfactory.core.files import MATRIX
from wheelfactory.explain.kernel_meaning import KernelMeaning, find_kernel_meaning
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.load import load_matrix


def known(name: str) -> KernelMeaning:
    found = find_kernel_meaning(name)
    assert found
    assert found.unknown == ()
    return found


def meanings(name: str) -> str:
    return "\n".join(part.meaning for part in known(name).parts)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "count"), [("2.8.3", 2775), ("2.7.4.post1", 2199)])
def test_every_part_of_every_generated_name_is_known(version: str, count: int, cache: Path) -> None:
    # all that the generator makes, because a log may be of a build without this factory
    release = load_matrix(MATRIX).flash_attn[version].model_copy(update={"ck": None})
    names = list_sources(version, release, cache, os.environ).sources
    assert len(names) == count
    assert [name for name in names if (found := find_kernel_meaning(name)) is None or found.unknown] == []


def test_a_name_of_2_8_3_is_explained() -> None:
    name = known(KERNEL_283)
    assert (name.direction, name.head_dim, name.type, name.mode, name.arch) == ("backward", "128", "bf16", "batch", "")
    text = meanings(KERNEL_283)
    assert "tile: 16 queries, 128 keys, 128 step of QK, 16 step of dV, 128 step of dP" in text
    assert "warps: 1x4x1 for QK and dP\nwarps: 4x1x1 for dV and dK\nwarps: 1x4x1 for dQ" in text
    assert "matrix: 16x16x32 for QK, dP and dQ\nmatrix: 16x16x16 for dV and dK" in text
    assert "pipeline: K, its transpose and V in registers, instructions interleaved (iglp)" in text
    for option in (
        "padded: keys",
        "ALiBi",
        "no gradient of the bias",
        "mask (causal",
        "dropout, 16-wide",
        "deterministic:",
    ):
        assert option in text


def test_a_name_of_the_newer_form_has_its_arch() -> None:
    assert known(KERNEL_MAIN).arch == "gfx9"
    text = meanings(KERNEL_MAIN)
    assert "any number of queries" in text
    assert "padded: head dim of Q (a multiple of 8), head dim of V (a multiple of 8)" in text
    assert "no transposing loads" in text


def test_each_operation_is_explained() -> None:
    operations = [
        ("fmha_fwd_splitkv_combine_d64_fp16_batch_b32_unused_psdv_lse_nsquant", "merges the partial results"),
        ("fmha_fwd_appendkv_d128_bf16_b64x64x128x128_vr_pskd_half_pagedkv", "KV cache"),
        ("fmha_bwd_dot_do_o_d32_bf16_group_o2_ps", "row sums"),
        ("fmha_bwd_dot_do_o_d32_bf16_b64_group_o2_ps_gfx9", "row sums"),
        ("fmha_bwd_convert_dq_d64_fp16_b64x128_batch_o2_npad_deterministic", "float32"),
        ("fmha_bwd_api", "chooses the bwd kernel"),
        ("fmha_fwd_splitkv_api", "chooses the fwd_splitkv kernel"),
    ]
    for name, operation in operations:
        assert operation in known(name).operation


def test_a_forward_name_of_august_2026_is_known() -> None:
    tile = "b128x128x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16"
    options = "npad_nlogits_nbias_mc_lse_ndropout_nskip_nqscale_trload_nsink"
    assert "asynchronous and transposing loads" in meanings(
        f"fmha_fwd_d192x128_bf16_group_{tile}_qr_async_trload_vr_{options}_gfx950"
    )


@pytest.mark.parametrize(
    ("suffix", "family"), [("gfx12", "Radeon RX 9000"), ("gfx115", "Ryzen AI"), ("gfx99", "gfx99")]
)
def test_the_suffix_names_the_family_of_gpus(suffix: str, family: str) -> None:
    found = known(KERNEL_MAIN.replace("_gfx9", f"_{suffix}"))
    assert found.arch == suffix
    assert family in found.family


def test_padding_letters_are_distinguished() -> None:
    name = "fmha_fwd_d64_bf16_batch_b128x64x32x64x32x64_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_vr_{}_nbias"
    padded = {word: meanings(name.format(word)).splitlines()[-2] for word in ("psk", "ps", "psd", "pdv", "psskddv")}
    assert padded == {
        "psk": "padded: keys",
        "ps": "padded: queries",
        "psd": "padded: queries, head dim of Q",
        "pdv": "padded: head dim of V",
        "psskddv": "padded: queries, keys, head dim of Q, head dim of V",
    }


def test_new_parts_are_unknown() -> None:
    found = find_kernel_meaning(f"{KERNEL_283}_frobnicated_b1x2")
    assert found
    assert found.unknown == ("frobnicated", "b1x2")


def test_other_names_are_not_explained() -> None:
    for name in ("", "flash_api", "fmha_", "fmha_fwd", "fmha_sideways_d128_bf16_batch", "fmha_fwd_d64_q"):
        assert find_kernel_meaning(name) is None


@given(st.text("fmha_bwdrox0123489gn", max_size=60))
def test_no_name_raises(tail: str) -> None:
    found = find_kernel_meaning(f"fmha_fwd_d64_bf16_{tail}")
    assert found is None or found.head_dim == "64"
