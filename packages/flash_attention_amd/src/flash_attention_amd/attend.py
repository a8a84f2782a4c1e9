"""Compute attention with a fused kernel if one supports the call, else by blocks.

The kernels are asked in this order: `scaled_dot_product_attention`, torch's FlashAttention-2 kernel, FlexAttention; the
last two in the other order for a long window without gradients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from flash_attention_amd import blocks, flash, flex, fused, operators
from flash_attention_amd.flash import Packed, needs_gradients
from flash_attention_amd.options import Attended, Options, exact
from flash_attention_amd.visible import Band, band

LONG = 2**18
"""Queries, over all sequences and heads, from which on FlexAttention computes a window faster than torch's
FlashAttention-2 kernel if no gradients are needed. On an H100, 16 times 16,384 queries took 0.121 ms with the former
and 0.260 ms with the latter, and 16 times 4,096 queries 0.090 and 0.064 ms."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    options: Options,
    mask: Tensor | None = None,
    *,
    lse: bool = False,
    probabilities: bool = False,
) -> Attended:
    """Attention of checked (batch, seqlen, heads, headdim) tensors, which may be empty.

    `mask` is as in `blocks.attend`. Only the output has a gradient.
    """
    if operators.traced(q):
        found = None if mask is not None or lse or probabilities else _traced(q, k, v, options)
        if found is not None:
            return found
        given = operators.flat(options, lse=lse, probabilities=probabilities)
        return operators.attended(_operator(q, k, v, mask, *given), lse=lse, probabilities=probabilities)
    # kernels mask with -inf before scaling, and 0 * -inf is NaN
    if not probabilities and options.scale > 0 and q.numel() and k.numel():
        found = _fused(q, k, v, options, mask, lse=lse)
        if found is not None:
            return found
    return blocks.attend(q, k, v, options, mask, probabilities=probabilities)


def attend_packed(q: Tensor, k: Tensor, v: Tensor, options: Options, packed: Packed, *, lse: bool) -> Attended | None:
    """Attention of packed sequences, checked (total, heads, headdim) tensors, in one call; None if no kernel does that.

    The log-sum-exp is (heads, total).
    """
    if not _simple(options) or not options.scale > 0 or not q.numel() or not k.numel():
        return None
    repeatable = options.deterministic and needs_gradients(q, k, v)
    q, k, v = _strided(q, k, v)
    return flash.attend_packed(q, k, v, options, packed, lse=lse, repeatable=repeatable)


def _fused(q: Tensor, k: Tensor, v: Tensor, options: Options, mask: Tensor | None, *, lse: bool) -> Attended | None:
    """Attention of non-empty tensors with the first fused kernel that supports it; None if none does."""
    seen = band(q.shape[1], k.shape[1], options.window_size, causal=options.causal)
    simple = _simple(options)
    # a mask over queries and keys would be converted to a full matrix of numbers first, so only key masks go to torch
    shaped = seen.full or seen.causal if mask is None else seen.full and not lse and mask.shape[1:3] == (1, 1)
    repeatable = options.deterministic and needs_gradients(q, k, v)
    if simple and shaped and not repeatable:
        found = fused.attend(q, k, v, options, seen, mask, lse=lse)
        if found is not None:
            return found
    return None if mask is not None else _windowed(q, k, v, options, seen, lse=lse)


def _traced(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Attended | None:
    """Attention with `scaled_dot_product_attention` in a graph that torch compiles; None if that is not possible.

    It is faster than an operator, whose backward pass computes attention again.
    """
    if not torch.compiler.is_dynamo_compiling() or not _simple(options) or not options.scale > 0:
        return None
    if not q.numel() or not k.numel() or not q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:
        return None
    seen = band(q.shape[1], k.shape[1], options.window_size, causal=options.causal)
    repeatable = options.deterministic and needs_gradients(q, k, v)
    if repeatable or not (seen.full or (seen.causal and not seen.shift)):
        return None
    return fused.attend(q, k, v, options, seen, lse=False)


def _windowed(q: Tensor, k: Tensor, v: Tensor, options: Options, seen: Band, *, lse: bool) -> Attended | None:
    """Attention of non-empty tensors with a kernel that supports windows; None if none does."""
    q, k, v = _strided(q, k, v)
    gradients = needs_gradients(q, k, v)
    repeatable = options.deterministic and gradients
    # torch does not document that FlexAttention's gradients have the same bits each time
    flexible = not repeatable and not options.dropout_p
    found = None
    if flexible and not gradients and seen.left is not None and q.shape[:3].numel() >= LONG:
        found = flex.attend(q, k, v, options, seen, lse=lse, gradients=False)
    if found is None and _simple(options):
        found = flash.attend(q, k, v, options, seen, lse=lse, repeatable=repeatable)
    if found is None and flexible:
        found = flex.attend(q, k, v, options, seen, lse=lse, gradients=gradients)
    return found


def _simple(options: Options) -> bool:
    """Whether the scores are scaled products alone."""
    return not options.softcap and options.alibi_slopes is None


def _strided(q: Tensor, k: Tensor, v: Tensor) -> Iterable[Tensor]:
    """The tensors, copied where the last dimension is not contiguous."""
    if q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:
        return q, k, v
    return (tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in (q, k, v))


def _compute(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *given: Any) -> operators.Computed:
    options, requested = operators.unflat(*given)
    return operators.packed(attend(q, k, v, options, mask, **requested))


def _fake(q: Tensor, k: Tensor, _v: Tensor, _mask: Tensor | None, *given: Any) -> operators.Computed:
    _, requested = operators.unflat(*given)
    batch, queries, heads, _ = q.shape
    sums = q.new_empty(batch, heads, queries, dtype=exact(q.dtype))
    shown = q.new_empty(batch, heads, queries, k.shape[1])
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return operators.packed(operators.attended((out, sums, shown), **requested))


_operator = operators.define_attention("attention", "Tensor? mask", _compute, _fake)
