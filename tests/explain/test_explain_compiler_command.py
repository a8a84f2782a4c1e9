"""A compile command flag by flag, and the names of generated kernels by upstream's naming scheme."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explain.build_logs import KERNEL_283, KERNEL_MAIN, ROCM_HIPCC, command
from wheelfactory.core.files import MATRIX
from wheelfactory.explain.compiler_command import (
    CompilerCommand,
    KernelMeaning,
    find_compiler_command,
    find_kernel_meaning,
)
from wheelfactory.explain.glossary import PATH, Glossary, glossary, read_table
from wheelfactory.kernels.source_list import list_sources
from wheelfactory.matrix.load import load_matrix


def parsed(line: str) -> CompilerCommand:
    found = find_compiler_command(line)
    assert found
    return found


def test_every_flag_of_upstreams_command_is_known() -> None:
    found = parsed(f"[111/2525] {command()}")
    assert (found.compiler, found.rocm, found.archs) == (ROCM_HIPCC, "7.2.0", ("gfx942",))
    assert found.name == KERNEL_MAIN
    assert found.output.endswith(f"/{KERNEL_MAIN}.o")
    assert found.unknown == ()


def test_header_directories_have_their_owner() -> None:
    owners = [owner.split(",")[0].split(";")[0] for _, owner in parsed(command()).headers]
    assert owners == ["Composable Kernel"] * 3 + ["torch"] * 2 + ["ROCm", "Python"]


def test_each_flag_has_its_meaning_and_setter() -> None:
    expected = [
        ("-O3", "flash-attn", "optimization"),
        ("-std=c++20", "flash-attn", "C++20"),
        ("-DUSE_ROCM=1", "torch", "use ROCm"),
        ("-DCK_USE_XDL", "flash-attn", "matrix cores"),
        ("-mllvm -amdgpu-early-inline-all=true", "flash-attn", "compile time explodes"),
        ("-fno-gpu-rdc", "torch", "each object"),
        ("-DTORCH_EXTENSION_NAME=flash_attn_2_cuda", "torch", "_cuda on AMD too"),
        ('-DPYBIND11_COMPILER_TYPE="_gcc"', "torch", "ABI"),
    ]
    flags = {flag.text: flag for flag in parsed(command()).flags}
    for text, set_by, meaning in expected:
        assert flags[text].set_by == set_by
        assert meaning in flags[text].meaning


def test_unknown_flags_are_listed() -> None:
    found = parsed(f"{command()} -mllvm -amdgpu-frobnicate=3 -ffrobnicate -DFROB=1 @response")
    assert found.unknown == ("-mllvm -amdgpu-frobnicate=3", "-ffrobnicate", "-DFROB=1", "@response")


def test_repeated_archs_are_listed_once() -> None:
    found = parsed(command(archs=("gfx90a", "gfx942", "gfx90a")))
    assert found.archs == ("gfx90a", "gfx942")


@pytest.mark.parametrize("launcher", ["/venv/bin/python -ISB /w/launcher.py", "/usr/bin/ccache"])
def test_a_launcher_before_the_compiler_is_recognized(launcher: str) -> None:
    found = parsed(f"{launcher} {command()}")
    assert found.compiler == ROCM_HIPCC
    assert found.launcher == tuple(launcher.split())


def test_every_flag_of_this_programs_command_is_known() -> None:
    flags = f"-O3 --offload-arch=gfx942 -mllvm -amdgpu-early-inline-all=false -cuid={KERNEL_283}"
    found = parsed(f"/usr/bin/hipcc {flags} -x hip -c build/{KERNEL_283}.hip -o /w/a.o")
    assert (found.name, found.rocm, found.unknown) == (KERNEL_283, "", ())


def test_a_command_truncated_within_quotes_is_parsed_up_to_there() -> None:
    whole = command()
    found = parsed(whole[: whole.index("_gcc")])
    assert found.archs == ("gfx942",)


def test_other_lines_are_no_command() -> None:
    for line in ("gcc --version", "python -c 'import torch' -o x", "hipcc -c -o a.o", "cp a.hip -o b -c c", ""):
        assert find_compiler_command(line) is None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("  bf16: bfloat16", "  fp16: bfloat16", "'fp16' is given twice"),
        ("direction: backward", "directions: backward", "Extra inputs are not permitted"),
    ],
)
def test_a_mistake_in_a_table_is_an_error(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(PATH.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        read_table(path, Glossary)


def test_a_flag_is_found_by_name_or_by_prefix() -> None:
    found = glossary()
    assert found.find_flag_meaning("-DUSE_ROCM=1") == ("torch's headers use ROCm", "torch")
    assert found.find_flag_meaning("-O2") == ("optimize", "")
    assert found.find_flag_meaning("-cuid=x") == (
        "a fixed id, so that the same source gives the same object on every machine",
        "wheelfactory",
    )
    assert found.find_flag_meaning("-ffrobnicate") is None
    assert found.find_flag_meaning("-Wl,-rpath,/opt") == ("for the linker", "")  # no warning flag, despite -W
    assert found.find_flag_meaning("-Wno-unused") == ("which warnings are printed or are errors", "")


def test_no_name_part_is_also_a_type() -> None:
    found = glossary()
    assert not set(found.name_parts) & set(found.types)


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
