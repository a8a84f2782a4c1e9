"""Which calls a proof of kernels makes, and what it says of their results."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from wheelfactory.build.environments import Environment
from wheelfactory.emulator.ck_calls import NOT_FINITE, CallReport, Difference
from wheelfactory.emulator.ck_names import SPLITS, suggest_calls
from wheelfactory.kernels import prove
from wheelfactory.kernels.compiler.record_calls import NOT_MODELLED, Job, Recording, choose_apis, read_fields, record
from wheelfactory.kernels.kernel_set import sample_sources
from wheelfactory.kernels.prove import choose_calls

FORWARD = "fmha_fwd_d32_bf16_batch_b128x64x16_qr_async_vr_psskddv_nlogits_alibi_mask_lse_dropout_nskip_nsquant"
APPEND = "fmha_fwd_appendkv_d64_fp16_b64x64x64x64_vr_pskd_inter_pagedkv"
COMBINE = "fmha_fwd_splitkv_combine_d32_bf16_batch_b32_unused_psdv_lse_nsquant"
BACKWARD = "fmha_bwd_d128_fp16_group_b16x128x128_o1_kr_ktr_vr_psskddv_nbias_ndbias_nmask_ndropout_deterministic"
OF_PREVIEW = "fmha_bwd_d64_fp16_batch_b32x64x64x32_o-1_maxq0_pd8dv8_nbias_ndbias_mask_dropout_wg16_ndeterministic"

HEADER = """
struct fmha_bwd_traits
{
    int hdim_q;
    std::string data_type; // fp16
    bool is_deterministic = false;
};
struct fmha_bwd_args
{
    ck_tile::index_t hdim_q;
    const void* q_ptr;
    // comment; of words
    const void*
        seqlen_k_ptr;
};
"""


def test_calls_follow_from_the_name_of_a_source() -> None:
    (call,) = suggest_calls(FORWARD)
    assert (call.api, call.dtype, call.dim, call.queries, call.keys) == ("fmha_fwd", "bf16", 24, (40,), (70,))
    assert (call.causal, call.alibi, call.dropout) == (True, True, 0.25)
    (call,) = suggest_calls(APPEND)
    assert (call.dim, call.queries, call.page, call.rotary) == (56, (64, 64), 128, "interleaved")
    assert [call.splits for call in suggest_calls(COMBINE)] == [*SPLITS]
    (call,) = suggest_calls(BACKWARD)
    assert (call.api, call.packed, call.deterministic, call.dropout) == ("fmha_bwd", True, True, 0)
    (call,) = suggest_calls(OF_PREVIEW)
    assert (call.dim, call.queries, call.keys, call.dropout, call.deterministic) == (56, (32,), (64,), 0.25, False)
    assert not [*suggest_calls("fmha_bwd_api"), *suggest_calls("fmha_bwd_dot_do_o_d32_bf16_batch_o2_psdv")]
    assert not [*suggest_calls(FORWARD.replace("_lse_", "_nlse_"))], "the bindings always ask for lse"


def test_a_sample_has_every_word_of_the_names_once() -> None:
    other = FORWARD.replace("bf16", "fp16")
    again = other.replace("d32", "d32").replace("alibi", "nbias")
    assert sample_sources([FORWARD, other, again, FORWARD.replace("alibi", "nbias"), "fmha_fwd_api"]) == [
        FORWARD,
        other,
        again,
    ]


def test_calls_that_launch_nothing_new_or_fail_are_left_out() -> None:
    first, *others = suggest_calls(COMBINE)
    rows = {call.name: Recording((f"launch kernel_{call.splits} 1",), "") for call in (first, *others)}
    rows[others[0].name] = Recording(("launch kernel_3 1",), "")
    rows[others[1].name] = Recording(("launch kernel_24 1",), "no kernel")
    assert choose_calls((first, *others), rows) == [first, *others[2:]]


def test_calls_are_executed_once_and_again_if_their_reports_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (call,), executed = suggest_calls(FORWARD), []
    (code := tmp_path / "code.o").write_bytes(b"machine code")

    def execute(command: Sequence[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
        executed.append(json.loads(Path(command[-1]).read_text()))
        report = CallReport(call.name, ("kernel",), len(executed), 1.0, (), ())
        return subprocess.CompletedProcess([], 0, json.dumps([asdict(report)]), "")

    monkeypatch.setattr(prove, "run", execute)
    monkeypatch.setattr(prove, "make_numpy_environment", lambda cache: Environment(cache))
    given = ({call.name: Recording(("launch kernel 1",), "")}, {"kernel": code}, tmp_path, tmp_path, [call])
    first = prove.execute_calls(*given)
    assert prove.execute_calls(*given) == first
    assert executed[0]["launches"] == {call.name: ["launch kernel 1"]}
    assert executed[0]["kernels"] == {"kernel": [str(code), str(tmp_path / "code.o.s")]}
    (kept,) = tmp_path.glob("proofs/calls-*.json")
    kept.write_bytes(kept.read_bytes()[:-3])
    assert (prove.execute_calls(*given)[0].instructions, len(executed)) == (2, 2)


def test_wrong_results_and_findings_are_faults_with_the_names_of_kernels_and_what_was_not_run_is_none() -> None:
    off, unwritten = Difference("output of 0", 2.0, 0.1), Difference("lse of 0", NOT_FINITE, 0.1)
    report = CallReport("call", ("kernel_a", "kernel_b"), 1, 1.0, (off, unwritten, Difference("parts", 0.1, 0.1)), ())
    assert report.faults == (
        "kernel_a, kernel_b: output of 0 is off by 2, limit 0.1",
        "kernel_a, kernel_b: lse of 0 is off by 1e+18, limit 0.1",
    )
    race = "kernel_a: read of local memory after another wave's write, without a barrier: ds_read"
    assert CallReport("call", ("kernel_a",), 1, 1.0, (), (race,), "kernel_a: not run: v_new").faults == (race,)


def test_a_field_that_no_struct_has_is_refused() -> None:
    assert read_fields(["fmha_bwd\nhdim_q 8\nq_ptr 1", "fmha_bwd\nhdim_q 8"], HEADER) == ["hdim_q", "q_ptr"]
    assert read_fields(["fmha_bwd\nis_deterministic 1\nseqlen_k_ptr 0"], HEADER)
    with pytest.raises(SystemExit, match="CK's headers lack the field hdim_k"):
        read_fields(["fmha_bwd\nhdim_k 8"], HEADER)
    with pytest.raises(SystemExit, match="CK's headers lack the field words"):
        read_fields(["fmha_bwd\nwords 8"], HEADER)


def test_no_backward_is_called_where_the_bindings_call_a_launcher(tmp_path: Path) -> None:
    calls = {"forward": "fmha_fwd\n", "backward": "fmha_bwd\n"}
    declared = {"fmha_fwd": "", "fmha_bwd": HEADER}
    assert choose_apis(calls.values(), declared) == ["fmha_fwd", "fmha_bwd"]
    apis = choose_apis(calls.values(), {**declared, "fmha_bwd": f"{HEADER}\nstruct fmha_bwd_launcher\n{{"})
    assert apis == ["fmha_fwd"]
    job = Job("hipcc", (), "", (), "gfx1201", {}, {"backward": calls["backward"]}, "")
    assert dict(record(job, tmp_path / "caller", apis, tmp_path)) == {"backward": Recording((), NOT_MODELLED)}
