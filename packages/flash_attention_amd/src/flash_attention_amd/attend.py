"""Compute attention with torch's fused kernels if they support the call, else by blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from flash_attention_amd import blocks, fused
from flash_attention_amd.options import Attended, Options
from flash_attention_amd.visible import band


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
    seen = band(q.shape[1], k.shape[1], options.window_size, causal=options.causal)
    simple = not probabilities and not options.softcap and options.alibi_slopes is None
    simple = simple and options.scale > 0  # kernels mask with -inf before scaling, and 0 * -inf is NaN
    # a mask over queries and keys would be converted to a full matrix of numbers first, so only key masks go to torch
    shaped = seen.full or seen.causal if mask is None else seen.full and not lse and mask.shape[1:3] == (1, 1)
    if simple and shaped and q.numel() and k.numel():
        repeatable = options.deterministic and torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        found = None if repeatable else fused.attend(q, k, v, options, seen, mask, lse=lse)
        if found is not None:
            return found
    return blocks.attend(q, k, v, options, mask, probabilities=probabilities)
