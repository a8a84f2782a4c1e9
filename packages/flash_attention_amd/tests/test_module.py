"""The module: masks of each shape, dropout in training alone."""

from __future__ import annotations

import pytest
import torch
from flash_attention_amd import FlashAttention, flash_attn_func
from reference import Told, attention, off
from torch import Tensor


def tensors(device: str, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    made = [(2, 30, 4, 16), (2, 40, 2, 16), (2, 40, 2, 16), (2, 30, 4, 16)]
    return [torch.randn(shape, device=device, dtype=dtype) for shape in made]


def some_keys(*shape: int, device: str) -> Tensor:
    """A mask that hides some keys, and all from the last query of the first sequence."""
    mask = torch.rand(shape, device=device) < 0.6
    (mask[0] if len(shape) == 2 else mask[0, ..., -1, :]).fill_(False)
    return mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("tiles", [True, False], ids=["divided", "whole"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 40), (2, 30, 40), (2, 1, 30, 40), (2, 4, 30, 40)], ids=len)
def test_a_mask_hides_keys(
    shape: tuple[int, ...], causal: bool, tiles: bool, dtype: torch.dtype, device: str, request: pytest.FixtureRequest
) -> None:
    if tiles:
        request.getfixturevalue("small_tiles")
    *some, gradient = tensors(device, dtype)
    some = [tensor.requires_grad_() for tensor in some]
    mask = some_keys(*shape, device=device)
    as_scores = mask.view(2, *(1,) * (4 - mask.dim()), *shape[1:])
    out = FlashAttention(causal=causal)(*some, mask=mask)
    true, *_ = attention(*some, Told(causal=causal), mask=as_scores)
    results = [out, *torch.autograd.grad(out, some, gradient)]
    for result, truth in zip(results, [true, *torch.autograd.grad(true, some, gradient)], strict=True):
        assert off(result, truth) < (1e-12 if dtype == torch.float64 else 2e-5)
    assert out[0, -1].count_nonzero() == 0


def test_options_are_those_of_the_function(device: str) -> None:
    q, k, v, _ = tensors(device)
    told = Told(causal=True, softmax_scale=0.2, window_size=(9, 3), softcap=2.0, alibi=1)
    slopes = told.slopes(2, 4, device)
    assert slopes is not None
    module = FlashAttention(
        causal=True, softmax_scale=0.2, window_size=(9, 3), softcap=2.0, alibi_slopes=slopes.cpu(), deterministic=True
    ).to(device)
    assert off(module(q, k, v), attention(q, k, v, told, slopes)[0]) < 1e-12
    assert not list(module.parameters())
    assert not module.state_dict()


def test_without_a_mask_it_is_the_function(device: str) -> None:
    q, k, v, _ = tensors(device)
    assert torch.equal(FlashAttention(causal=True)(q, k, v), flash_attn_func(q, k, v, causal=True))


@pytest.mark.parametrize("mask", [None, (2, 40)], ids=["no mask", "mask"])
def test_dropout_is_for_training(mask: tuple[int, int] | None, device: str) -> None:
    q, k, v, _ = tensors(device)
    hidden = None if mask is None else some_keys(*mask, device=device)
    module = FlashAttention(dropout=0.5)
    trained = module(q, k, v, hidden)
    module.eval()
    still = module(q, k, v, hidden)
    assert torch.equal(still, FlashAttention()(q, k, v, hidden))
    assert not torch.allclose(trained, still)
