"""Dropout: how much is dropped, that a seed brings it back, and that both passes drop the same."""

from __future__ import annotations

import pytest
import torch
from flash_attention_amd import flash_attn_func, flash_attn_varlen_func
from reference import Told, attention, off
from torch import Tensor

P = 0.3


def tensors(device: str, dtype: torch.dtype, length: int = 64, width: int = 64) -> list[Tensor]:
    return [torch.randn(2, length, 4, width, device=device, dtype=dtype) for _ in range(4)]


def mask_of(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """What one call drops, seen from outside: with the unit matrix as values the output is the probabilities."""
    eye = torch.eye(k.shape[1], device=k.device, dtype=k.dtype)[None, :, None].expand_as(k)
    return flash_attn_func(q, k, eye, dropout_p=P, causal=causal).transpose(1, 2) != 0


@pytest.mark.parametrize("causal", [False, True])
def test_both_passes_drop_the_same_probabilities(causal: bool, device: str) -> None:
    # float16 goes to a fused kernel on a GPU, by blocks on a CPU
    q, k, v, gradient = tensors(device, torch.float16)
    torch.manual_seed(7)
    kept = mask_of(q * 0.1, k * 0.1, causal)
    again = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
    torch.manual_seed(7)
    out = flash_attn_func(*again, dropout_p=P, causal=causal)
    found = [out, *torch.autograd.grad(out, again, gradient)]
    exact = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    true, *_ = attention(*exact, Told(causal=causal), kept=kept, dropout_p=P)
    expected = [true, *torch.autograd.grad(true, exact, gradient.double())]
    assert [off(*pair) < 0.02 for pair in zip(found, expected, strict=True)] == [True] * 4


@pytest.mark.parametrize("tiles", [True, False], ids=["divided", "whole"])
def test_dropped_probabilities_are_negative(tiles: bool, device: str, request: pytest.FixtureRequest) -> None:
    if tiles:
        request.getfixturevalue("small_tiles")
    *some, gradient = tensors(device, torch.float64, 48, 16)
    told = Told(softcap=2.0, alibi=1, causal=True)
    slopes = told.slopes(2, 4, device)
    some = [tensor.requires_grad_() for tensor in some]
    out, _, chances = flash_attn_func(*some, dropout_p=P, **told.arguments(slopes), return_attn_probs=True)
    found = [out, *torch.autograd.grad(out, some, gradient)]
    true, _, expected = attention(*some, told, slopes, kept=chances > 0, dropout_p=P)
    assert off(chances.abs(), expected) < 1e-12
    assert [
        off(*pair) < 1e-11 for pair in zip(found, [true, *torch.autograd.grad(true, some, gradient)], strict=True)
    ] == [True] * 4


@pytest.mark.parametrize("tiles", [True, False], ids=["divided", "whole"])
def test_dropout_has_the_requested_rate_and_differs_everywhere(
    tiles: bool, device: str, request: pytest.FixtureRequest
) -> None:
    if tiles:
        request.getfixturevalue("small_tiles")
    q, k, v, _ = tensors(device, torch.float32)
    dropped = flash_attn_func(q, k, v, dropout_p=P, return_attn_probs=True)[2] < 0
    count = dropped.numel()
    assert abs(dropped.double().mean() - P) < 5 * (P * (1 - P) / count) ** 0.5
    rows = dropped.flatten(0, 2)
    assert len({tuple(row.tolist()) for row in rows}) == len(rows)  # no row, head or sequence repeats another
    assert abs(dropped.double().mean((0, 1, 2)) - P).max() < 5 * (P * (1 - P) / len(rows)) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_seed_brings_back_the_same_and_nothing_else_does(dtype: torch.dtype, device: str) -> None:
    q, k, v, _ = tensors(device, dtype)

    def drop() -> Tensor:
        return flash_attn_func(q, k, v, dropout_p=P)

    torch.manual_seed(5)
    first, second = drop(), drop()
    torch.manual_seed(5)
    assert torch.equal(drop(), first)
    assert torch.equal(drop(), second)
    assert not torch.equal(first, second)
    torch.manual_seed(6)
    assert not torch.equal(drop(), first)


def test_sequences_of_a_batch_drop_different_keys(device: str) -> None:
    q, k, v, _ = (tensor.flatten(0, 1) for tensor in tensors(device, torch.float32, 50))
    starts = torch.tensor([0, 50, 99], device=device)
    chances = flash_attn_varlen_func(q, k, v, starts, starts, 50, 50, dropout_p=P, return_attn_probs=True)[2]
    assert not torch.equal(chances[0, :, :49, :49] < 0, chances[1, :, :49, :49] < 0)
