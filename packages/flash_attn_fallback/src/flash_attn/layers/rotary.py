"""Rotary position embedding (Su et al., 2021)."""

from __future__ import annotations

import torch
from flash_attention_amd.rotary import rotate
from torch import Tensor


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | Tensor = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,  # noqa: ARG001  # flash-attn's kernel needs it
) -> Tensor:
    """Rotate (batch, seqlen, heads, headdim), or packed (total, heads, headdim) with the starts `cu_seqlens`.

    `cos` and `sin` are (positions, rotated dimensions / 2); `seqlen_offsets` are added to all positions, or to those
    of each sequence.
    """
    offsets = torch.as_tensor(seqlen_offsets, device=x.device)
    if cu_seqlens is None:
        positions = torch.arange(x.shape[1], device=x.device) + offsets.expand(x.shape[0])[:, None]
        out = rotate(x, cos, sin, positions, interleaved=interleaved)
    else:
        lengths = cu_seqlens.diff()
        shifts = torch.repeat_interleave(offsets.expand(len(lengths)) - cu_seqlens[:-1], lengths)
        positions = torch.arange(x.shape[0], device=x.device) + shifts
        out = rotate(x[None], cos, sin, positions[None], interleaved=interleaved)[0]
    return x.copy_(out) if inplace else out


apply_rotary_emb_func = apply_rotary_emb
