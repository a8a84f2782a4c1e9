"""Packed sequences: each is what it is alone, whatever its length and its neighbours'."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from flash_attention_amd import (
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)
from reference import Told, agree, attention, off
from torch import Tensor

LENGTHS = {
    "different": ([33, 1, 17, 40], [33, 20, 9, 40]),
    "alike": ([20, 20, 20], [30, 30, 30]),
    "neighbours alike": ([5, 5, 9, 9, 5], [7, 7, 9, 9, 5]),
    "some empty": ([0, 12, 0, 7], [4, 0, 0, 9]),
    "one query or none": ([1, 0, 1], [9, 4, 0]),
    "one": ([25], [31]),
}

OPTIONS = {
    "nothing": Told(),
    "causal": Told(causal=True),
    "causal window": Told(causal=True, window_size=(6, 0)),
    "alibi of sequences, softcap": Told(alibi=2, softcap=2.0),
}


def starts(lengths: list[int], device: str) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def reference(
    q: Tensor, k: Tensor, v: Tensor, lengths: tuple[list[int], list[int]], told: Told, slopes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp of each sequence alone, and nothing for the rows after them."""
    rest = [q.shape[0] - sum(lengths[0]), k.shape[0] - sum(lengths[1])]
    queries, keys, values = (
        q.split([*lengths[0], rest[0]]),
        k.split([*lengths[1], rest[1]]),
        v.split([*lengths[1], rest[1]]),
    )
    outs, sums = [], []
    for number in range(len(lengths[0])):
        own = slopes if slopes is None or slopes.dim() == 1 else slopes[number : number + 1]
        out, lse, _ = attention(queries[number][None], keys[number][None], values[number][None], told, own)
        outs.append(out[0])
        sums.append(lse[0])
    outs.append(torch.zeros_like(queries[-1]))
    sums.append(q.new_full((q.shape[1], rest[0]), -torch.inf))
    return torch.cat(outs), torch.cat(sums, 1)


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", LENGTHS)
def test_each_sequence_equals_its_result_alone(
    name: str, option: str, dtype: torch.dtype, after: int, device: str
) -> None:
    lengths, told = LENGTHS[name], OPTIONS[option]
    sizes = [(sum(lengths[0]) + after, 4), (sum(lengths[1]) + after, 2), (sum(lengths[1]) + after, 2)]
    tensors = [torch.randn(*size, 16, device=device, dtype=dtype, requires_grad=True) for size in sizes]
    slopes = told.slopes(len(lengths[0]), 4, device)
    out, lse = flash_attn_varlen_func(
        *tensors,
        *(starts(some, device) for some in lengths),
        *(max(some) for some in lengths),
        **told.arguments(slopes),
        return_softmax_lse=True,
    )
    gradient = torch.randn_like(out)
    found = [out, *torch.autograd.grad(out, tensors, gradient)]
    results = []
    for exact in (dtype, torch.float64):
        some = [tensor.detach().to(exact).requires_grad_() for tensor in tensors]
        true, sums = reference(*some, lengths, told, slopes)
        results.append([true, *torch.autograd.grad(true, some, gradient.to(exact))])
    agree(found, *results)
    assert off(lse, sums) < (1e-2 if dtype == torch.float16 else 1e-5)
    assert out[sum(lengths[0]) :].count_nonzero() == 0


def test_there_may_be_no_sequence(device: str) -> None:
    rows, cu = torch.ones(3, 2, 8, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    out, lse = flash_attn_varlen_func(rows, rows, rows, cu, cu, 0, 0, return_softmax_lse=True)
    assert torch.equal(out, torch.zeros_like(rows))
    assert torch.equal(lse, torch.full((2, 3), -torch.inf, device=device))


def test_packed_tensors_are_taken_apart(device: str) -> None:
    lengths = [9, 4, 4]
    cu = starts(lengths, device)
    q, k, v = (torch.randn(17, 2, 8, device=device) for _ in range(3))
    expected = flash_attn_varlen_func(q, k, v, cu, cu, 9, 9, causal=True)
    qkv = torch.stack([q, k, v], 1)
    assert off(flash_attn_varlen_qkvpacked_func(qkv, cu, 9, causal=True), expected) < 1e-5
    assert off(flash_attn_varlen_kvpacked_func(q, qkv[:, 1:], cu, cu, 9, 9, causal=True), expected) < 1e-5
    out, lse, chances = flash_attn_varlen_qkvpacked_func(qkv, cu, 9, causal=True, return_attn_probs=True)
    assert off(out, expected) < 1e-5
    assert lse.shape == (2, 17)
    assert chances.shape == (3, 2, 9, 9)


def test_probabilities_are_padded_to_the_longest(device: str) -> None:
    cu_q, cu_k = starts([3, 5], device), starts([4, 2], device)
    q, k, v = (torch.randn(size, 2, 8, device=device) for size in (8, 6, 6))
    _, _, chances = flash_attn_varlen_func(q, k, v, cu_q, cu_k, 6, 7, return_attn_probs=True)
    assert chances.shape == (2, 2, 6, 7)
    for number, (rows, columns) in enumerate(((3, 4), (5, 2))):
        assert off(chances[number, :, :rows, :columns].sum(-1), torch.ones(2, rows, device=device)) < 1e-5
        assert off(chances[number].sum(), torch.tensor(2.0 * rows, device=device)) < 1e-5  # nothing beyond


def test_keys_may_lie_in_blocks(device: str) -> None:
    lengths = [9, 20, 1]
    cu_q, cu_k = starts([3, 5, 5], device), starts(lengths, device)
    q = torch.randn(13, 4, 8, device=device)
    k, v = (torch.randn(10, 8, 2, 8, device=device) for _ in range(2))
    table = torch.tensor([[4, 1, 99], [7, 0, 3], [5, 99, 99]], dtype=torch.int32, device=device)
    packed = [
        torch.cat(
            [pages[table[n, : -(-length // 8)].long()].flatten(0, 1)[:length] for n, length in enumerate(lengths)]
        )
        for pages in (k, v)
    ]
    expected = flash_attn_varlen_func(q, *packed, cu_q, cu_k, 5, 20, causal=True)
    assert torch.equal(flash_attn_varlen_func(q, k, v, cu_q, cu_k, 5, 20, causal=True, block_table=table), expected)


def test_sequences_alike_are_one_batch(device: str) -> None:
    q, k, v = (torch.randn(3, 10, 2, 8, device=device) for _ in range(3))
    cu = starts([10, 10, 10], device)
    packed = flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), cu, cu, 10, 10, causal=True)
    assert torch.equal(packed.view_as(q), flash_attn_func(q, k, v, causal=True))
