"""How it goes together with the rest of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flash_attention_amd import flash_attn_func
from reference import Told, attention, off
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def tensors(device: str, dtype: torch.dtype, length: int = 12) -> list[Tensor]:
    return [torch.randn(1, length, 2, 8, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]


OPTIONS: dict[str, dict[str, Any]] = {"fused": {"causal": True}, "blocks": {"causal": True, "softcap": 2.0}}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradients_are_those_of_small_differences(options: dict[str, Any], device: str) -> None:
    assert torch.autograd.gradcheck(
        lambda q, k, v: flash_attn_func(q, k, v, **options), tensors(device, torch.float64, 4)
    )


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_autocast_changes_nothing(options: dict[str, Any], device: str) -> None:
    some = tensors(device, torch.float32)
    expected = flash_attn_func(*some, **options)
    with torch.autocast(device, torch.bfloat16):
        out = flash_attn_func(*some, **options)
        gradients = torch.autograd.grad(out.sum(), some)
    assert out.dtype == torch.float32
    assert torch.equal(out, expected)
    assert all(off(*pair) < 1e-5 for pair in zip(gradients, torch.autograd.grad(expected.sum(), some), strict=True))


def test_checkpoints_drop_the_same_again(device: str) -> None:
    some = tensors(device, torch.float32)
    torch.manual_seed(3)
    expected = torch.autograd.grad(flash_attn_func(*some, dropout_p=0.4).sum(), some)
    torch.manual_seed(3)
    out = checkpoint(lambda *qkv: flash_attn_func(*qkv, dropout_p=0.4), *some, use_reentrant=False)
    assert all(off(*pair) < 1e-6 for pair in zip(torch.autograd.grad(out.sum(), some), expected, strict=True))


def test_deterministic_gradients_have_the_same_bits_each_time(device: str) -> None:
    some = [torch.randn(4, 300, 4, 64, device=device, dtype=torch.float16, requires_grad=True) for _ in range(3)]
    gradient = torch.randn(4, 300, 4, 64, device=device, dtype=torch.float16)
    first, *others = (
        torch.autograd.grad(flash_attn_func(*some, causal=True, deterministic=True), some, gradient) for _ in range(3)
    )
    assert all(torch.equal(*pair) for other in others for pair in zip(first, other, strict=True))


def test_users_choose_the_kernel_as_for_torchs_own_function(device: str) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (tensor.detach() for tensor in tensors(device, torch.float32))
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        out = flash_attn_func(q, k, v, causal=True)
    assert off(out, attention(q.double(), k.double(), v.double(), Told(causal=True))[0]) < 1e-5
