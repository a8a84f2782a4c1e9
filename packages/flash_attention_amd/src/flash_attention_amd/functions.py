"""flash-attn's functions for batches of sequences of the same length."""

from __future__ import annotations

from torch import Tensor

from flash_attention_amd.attend import attend
from flash_attention_amd.options import Result, check, check_batch, options, result, unpacked

DIMENSIONS = "batch, seqlen, heads, headdim"


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    return_softmax_lse: bool = False,
) -> Result:
    """softmax(q k^T scale) v for each sequence and head.

    A fused kernel of torch computes, if torch has one for this device, dtype, headdim and options; with softcap,
    alibi_slopes or window_size that can be FlexAttention, which torch compiles in the first call. Else the
    slower block algorithm computes in float32: on CPUs with any of these options, with return_attn_probs, and with
    deterministic gradients unless torch's FlashAttention-2 kernel for NVIDIA GPUs supports the call. Either way, the
    memory beside inputs and results does not grow with the square of the sequence, except for return_attn_probs. The
    result has the dtype of the inputs, also under autocast.

    Arguments:
        q: (batch, seqlen_q, heads, headdim), float16, bfloat16, float32 or float64, on any device.
        k, v: (batch, seqlen_k, heads_k, headdim) of the same dtype; heads is a multiple of heads_k, and heads 0, 1 and
            2 of 6 go with head 0 of 2.
        dropout_p: the chance that a probability is dropped; 0 for evaluation. torch.manual_seed makes it repeatable.
        softmax_scale: None is 1 / sqrt(headdim).
        causal: a query sees no key after its aligned key. The last query is aligned with the last key: query i with
            key i + seqlen_k - seqlen_q.
        window_size: (left, right): the number of visible keys before and after the aligned key; -1 is all.
        softcap: above 0, scores are softcap * tanh(score / softcap).
        alibi_slopes: (heads,) or (batch, heads): -slope * |i + seqlen_k - seqlen_q - j| is added to the score of query
            i and key j. The slopes get no gradient.
        deterministic: the backward pass gives the same bits each time; the forward pass always does. While the
            FlashAttention-2 kernel's backward pass is launched, torch's deterministic mode is on for all threads.
        return_attn_probs: return (out, softmax_lse, probabilities), which makes the full matrix.
        return_softmax_lse: return (out, softmax_lse); flash-attn has no such option.

    Returns:
        out: (batch, seqlen_q, heads, headdim), contiguous; zero for a query that sees no key.
        softmax_lse: (batch, heads, seqlen_q), float32 (float64 for float64 inputs), without gradient: the natural log
            of the sum of exp(score), -inf for a query that sees no key (flash-attn's backends disagree about that).
        probabilities: (batch, heads, seqlen_q, seqlen_k) in the dtype of q, without gradient, negative where dropped
            and not yet divided by 1 - dropout_p.

    Raises ValueError for a shape, device or option, TypeError for a dtype.
    """
    check(q, k, v, DIMENSIONS)
    check_batch(q, k)
    chosen = options(
        q,
        q.shape[0],
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        deterministic=deterministic,
    )
    found = attend(q, k, v, chosen, lse=return_softmax_lse or return_attn_probs, probabilities=return_attn_probs)
    return result(found, lse=return_softmax_lse, probabilities=return_attn_probs)


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    return_softmax_lse: bool = False,
) -> Result:
    """`flash_attn_func` for keys and values in one tensor (batch, seqlen_k, 2, heads_k, headdim), without a copy."""
    k, v = unpacked(kv, "kv", 2, DIMENSIONS)
    return flash_attn_func(
        q,
        k,
        v,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
        return_softmax_lse=return_softmax_lse,
    )


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    return_softmax_lse: bool = False,
) -> Result:
    """`flash_attn_func` for all three in one tensor (batch, seqlen, 3, heads, headdim), without a copy."""
    q, k, v = unpacked(qkv, "qkv", 3, DIMENSIONS)
    return flash_attn_func(
        q,
        k,
        v,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
        return_softmax_lse=return_softmax_lse,
    )
