"""The wheel named flash-attn: the names that frameworks import from it, and what it computes itself."""

from __future__ import annotations

import flash_attention_amd
import pytest
import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func
from flash_attn.bert_padding import pad_input, unpad_input
from flash_attn.flash_attn_interface import _wrapped_flash_attn_backward, _wrapped_flash_attn_forward
from flash_attn.layers.rotary import apply_rotary_emb

LENGTHS = (2, 4)
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]


def test_its_functions_are_those_of_flash_attention_amd() -> None:
    """Except that the output has the strides of the queries, as ComfyUI's operator requires."""
    assert flash_attn_varlen_func is flash_attention_amd.flash_attn_varlen_func
    q, k, v = torch.randn(3, 2, 3, 5, 32, requires_grad=True).transpose(2, 3)
    out, expected = flash_attn_func(q, k, v, causal=True), flash_attention_amd.flash_attn_func(q, k, v, causal=True)
    assert out.stride() == q.stride()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(torch.autograd.grad(out.sin().sum(), q), torch.autograd.grad(expected.sin().sum(), q))


def test_attention_that_gpus_share_has_the_log_sum_exp_and_refuses_gradients() -> None:
    """diffusers imports both functions, and calls them where several GPUs share a sequence."""
    q, k, v = torch.randn(3, 2, 5, 3, 32)
    out, lse, *_ = _wrapped_flash_attn_forward(q, k, v, 0.0, 0.3, True, 2, 0, 0.0, None, False)
    expected = flash_attn_func(q, k, v, 0.0, 0.3, True, (2, 0), return_attn_probs=True)
    torch.testing.assert_close((out, lse), expected[:2])
    with pytest.raises(NotImplementedError, match="dropout"):
        _wrapped_flash_attn_forward(q, k, v, 0.1, 0.3, True, 2, 0, 0.0, None, False)
    with pytest.raises(NotImplementedError, match="gradients"):
        _wrapped_flash_attn_backward(out, q, k, v, out, lse)


def test_a_padded_batch_is_packed_and_padded_again() -> None:
    x = torch.randn(2, 5, 3, 4, requires_grad=True)
    packed, indices, starts, longest = unpad_input(x, MASK)
    torch.testing.assert_close(packed, torch.cat([x[0, :2], x[1, :4]]))
    assert (starts.tolist(), starts.dtype, longest) == ([0, 2, 6], torch.int32, 4)
    padded = pad_input(packed, indices, 2, 5)
    torch.testing.assert_close(padded, x * MASK[..., None, None])
    padded.sum().backward()
    assert torch.equal(x.grad, MASK[..., None, None].expand_as(x).float())


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_turns_pairs_by_the_angle_of_their_position(interleaved: bool) -> None:
    """Batches with an offset for each sequence, packed sequences, and in place; the last dimensions stay."""
    angles, x, offsets = torch.rand(10, 4), torch.randn(2, 5, 3, 10), torch.tensor([1, 3])
    cos, sin = angles.cos(), angles.sin()
    parts = (x[..., :8:2], x[..., 1:8:2]) if interleaved else (x[..., :4], x[..., 4:8])
    turned = torch.complex(*parts) * torch.exp(1j * torch.stack([angles[1:6], angles[3:8]]))[:, :, None]
    pair = torch.view_as_real(turned)
    expected = torch.cat([pair.flatten(-2) if interleaved else pair.mT.flatten(-2), x[..., 8:]], -1)
    torch.testing.assert_close(apply_rotary_emb(x, cos, sin, interleaved, seqlen_offsets=offsets), expected)
    starts = torch.tensor([0, 5, 10], dtype=torch.int32)
    options = {"interleaved": interleaved, "seqlen_offsets": offsets, "cu_seqlens": starts, "max_seqlen": 5}
    torch.testing.assert_close(apply_rotary_emb(x.flatten(0, 1), cos, sin, **options), expected.flatten(0, 1))
    again = apply_rotary_emb(x, cos, sin, interleaved, inplace=True, seqlen_offsets=offsets)
    assert again is x
    torch.testing.assert_close(x, expected)
