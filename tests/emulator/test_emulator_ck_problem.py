"""What a call of CK's host API must compute, and the fields that it sets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wheelfactory.emulator.ck_calls import ADDRESS_STEP, FIRST_ADDRESS, NOT_FINITE, Call
from wheelfactory.emulator.ck_problem import Problem, attend, decode, encode

CALL = Call("call", "fmha_fwd", "bf16", (5,), (7,), groups=1, dim=8, causal=True, alibi=True)


def fields_of(call: Call) -> dict[str, str]:
    api, *lines = call.request().splitlines()
    assert api == call.api
    return dict(line.split(" ", 1) for line in lines)


def test_fields_name_shapes_options_and_places_of_tensors() -> None:
    fields = fields_of(CALL)
    assert (fields["data_type"], fields["mask_type"], fields["bias_type"]) == ("bf16", "2", "2")
    assert (fields["seqlen_q"], fields["seqlen_k"], fields["nhead_k"]) == ("5", "7", "1")
    assert (fields["window_size_left"], fields["window_size_right"]) == ("-1", "0")
    assert (fields["stride_q"], fields["nhead_stride_q"], fields["batch_stride_q"]) == ("16", "8", "80")
    assert int(fields["q_ptr"]) == FIRST_ADDRESS
    assert int(fields["k_ptr"]) == FIRST_ADDRESS + ADDRESS_STEP
    backward = Call("call", "fmha_bwd", "fp16", (5, 4), (7, 3), dim=8, packed=True, dropout=0.25)
    fields = fields_of(backward)
    assert (fields["seqlen_q"], fields["max_seqlen_q"], fields["batch"]) == ("9", "5", "2")
    assert {"seqstart_q_ptr", "dq_acc_ptr", "nhead_stride_lsed", "drop_seed_offset"} <= {*fields}
    forward = backward.forward
    assert forward
    assert (forward.api, "rand_val_ptr" in fields_of(forward)) == ("fmha_fwd", True)


def test_gradients_are_the_slopes_of_the_output() -> None:
    source = np.random.default_rng(0)
    queries, keys, values = (source.standard_normal((rows, heads, 8)) for rows, heads in ((5, 2), (7, 1), (7, 1)))
    gradient, keep = source.standard_normal((5, 2, 8)), source.random((2, 5, 7)) < 0.75
    call = Call("call", "fmha_bwd", "bf16", (5,), (7,), groups=1, dim=8, causal=True, alibi=True, dropout=0.25)
    found = attend(call, queries, keys, values, keep).differentiate(gradient)
    for number in range(3):
        slope = source.standard_normal((queries, keys, values)[number].shape)

        def total(step: float, number: int = number, slope: np.ndarray = slope) -> float:
            moved = [queries, keys, values]
            moved[number] = moved[number] + step * slope
            return float((attend(call, moved[0], moved[1], moved[2], keep).output * gradient).sum())

        of_heads = found[number] if number == 0 else found[number].sum(1, keepdims=True)  # for each head of the queries
        assert (of_heads * slope).sum() == pytest.approx((total(1e-6) - total(-1e-6)) / 2e-6, rel=1e-5)


def test_rows_without_keys_are_0_and_their_lse_is_minus_infinity() -> None:
    call = Call("call", "fmha_fwd", "fp16", (4,), (2,), heads=1, dim=8, causal=True)
    done = attend(call, np.ones((4, 1, 8)), np.ones((2, 1, 8)), np.full((2, 1, 8), 3.0), None)
    assert done.output[:, 0, 0].tolist() == [0, 0, 3, 3]
    assert done.lse[0].tolist() == pytest.approx([-math.inf, -math.inf, math.sqrt(8), math.sqrt(8) + math.log(2)])


def test_only_the_right_result_is_within_its_bound() -> None:
    problem = Problem.draw(CALL, 0)
    assert {each.error for each in problem.compare()} == {NOT_FINITE}  # nothing was written
    queries, keys, values = (decode(problem.arrays[name][0]) for name in ("queries", "keys", "values"))
    done = attend(CALL, queries, keys, values, None)
    problem.arrays["output"][0] = encode(done.output, "bf16")
    problem.arrays["lse"][0] = done.lse
    assert all(each.error <= each.bound for each in problem.compare())
    problem.arrays["output"][0, 4, 1, 0] ^= 1 << 6
    problem.arrays["lse"][0, 1, 4] += 1e-3
    wrong = [each.name for each in problem.compare() if not each.error <= each.bound]
    assert wrong == ["output of 0", "lse of 0"]


def test_dropout_of_packed_sequences_has_the_rows_of_all_and_the_columns_of_one() -> None:
    """As CK's group mode stores its random bytes: at the rows of a sequence, and from the first column on."""
    call = Call("call", "fmha_fwd", "fp16", (3, 2), (4, 5), heads=1, dim=8, packed=True, dropout=0.5)
    problem = Problem.draw(call, 0)
    queries, keys, values = (decode(problem.arrays[name][0]) for name in ("queries", "keys", "values"))
    drawn = np.random.default_rng(1).integers(0, 256, problem.arrays["random"].shape, np.uint8)
    problem.arrays["random"][...] = drawn
    for rows, columns in ((slice(0, 3), slice(0, 4)), (slice(3, 5), slice(4, 9))):
        kept = drawn[0, :, rows, : columns.stop - columns.start] <= 127
        done = attend(call, queries[rows], keys[columns], values[columns], kept)
        problem.arrays["output"][0, rows] = encode(done.output, "fp16")
        problem.arrays["lse"][0, :, rows] = done.lse
    assert [each.name for each in problem.compare() if not each.error <= each.bound] == []
