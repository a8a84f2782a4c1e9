"""Rotary position embedding (Su et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, *, interleaved: bool) -> Tensor:
    """Rotate the first dimensions of (batch, seqlen, heads, headdim) by the angles of their positions.

    `cos` and `sin` are (positions, rotated dimensions / 2), `positions` integers (batch, seqlen). Dimensions 0 and
    1, 2 and 3 ... are pairs if interleaved; else i and i + half. The arithmetic is float32.
    """
    half = cos.shape[1]
    cosine, sine = (table[positions][:, :, None].float() for table in (cos, sin))
    rotated = x[..., : 2 * half].float()
    first, second = (rotated[..., ::2], rotated[..., 1::2]) if interleaved else rotated.chunk(2, -1)
    pair = first * cosine - second * sine, first * sine + second * cosine
    both = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat([both.to(x.dtype), x[..., 2 * half :]], -1)
