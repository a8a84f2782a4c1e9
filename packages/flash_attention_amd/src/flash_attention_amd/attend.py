"""One attention: the fused kernels where they can do it, blocks where they cannot."""

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
    """Attention of checked (batch, seqlen, heads, headdim) tensors, of which any may be empty.

    `mask` is as in `blocks.attend`; the log-sum-exp and the probabilities have no gradient.
    """
    seen = band(q.shape[1], k.shape[1], options.window_size, causal=options.causal)
    simple = not probabilities and not options.softcap and options.alibi_slopes is None
    simple = simple and options.scale > 0  # kernels hide a key by -inf before they scale: 0 makes NaN of that
    # torch has kernels that take a mask, but one of queries and keys would first be made a matrix of numbers
    shaped = seen.full or seen.causal if mask is None else seen.full and not lse and mask.shape[1:3] == (1, 1)
    if simple and shaped and q.numel() and k.numel():
        repeatable = options.deterministic and torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        found = None if repeatable else fused.attend(q, k, v, options, seen, mask, lse=lse)
        if found is not None:
            return found
    return blocks.attend(q, k, v, options, mask, probabilities=probabilities)
