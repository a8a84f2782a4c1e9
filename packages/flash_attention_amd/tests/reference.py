"""Attention written out: which query sees which key by its definition, the full matrix, one dtype throughout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

ATOL = {torch.float16: 1e-5, torch.bfloat16: 1e-5, torch.float32: 5e-6, torch.float64: 1e-13}
"""Beside the multiple of rounding alone; upstream's tests have the first."""


@dataclass(frozen=True)
class Told:
    """Options of a call."""

    causal: bool = False
    softmax_scale: float | None = None
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    deterministic: bool = False
    alibi: int = 0
    """Dimensions of the slopes: 0 for none, 1 for one a head, 2 for one a sequence and head."""

    def slopes(self, batch: int, heads: int, device: str) -> Tensor | None:
        """ALiBi's slopes, another for each head."""
        if not self.alibi:
            return None
        slopes = torch.linspace(0.05, 0.4, batch * heads, device=device).view(batch, heads)
        return slopes if self.alibi == 2 else slopes[0]

    def arguments(self, slopes: Tensor | None) -> dict[str, object]:
        """The options as the functions take them."""
        return {
            "causal": self.causal,
            "softmax_scale": self.softmax_scale,
            "window_size": self.window_size,
            "softcap": self.softcap,
            "deterministic": self.deterministic,
            "alibi_slopes": slopes,
        }


@cache
def seen(queries: int, keys: int, causal: bool, window: tuple[int, int]) -> Tensor:
    """Whether query i sees key j, as flash-attn's documentation says it."""

    def sees(i: int, j: int) -> bool:
        opposite = i + keys - queries
        right = 0 if causal else window[1]
        return (window[0] < 0 or j >= opposite - window[0]) and (right < 0 or j <= opposite + right)

    return torch.tensor([[sees(i, j) for j in range(keys)] for i in range(queries)], dtype=torch.bool).view(
        queries, keys
    )


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    told: Told,
    slopes: Tensor | None = None,
    mask: Tensor | None = None,
    kept: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The output, the log-sum-exp and the probabilities before dropout, in the dtype of the inputs.

    `mask` and `kept` (of dropout) are bool, broadcast to (batch, heads, queries, keys).
    """
    batch, queries, heads, width = q.shape
    keys = k.shape[1]
    k, v = (tensor.repeat_interleave(heads // k.shape[2], 2) for tensor in (k, v))
    scale = width**-0.5 if told.softmax_scale is None else told.softmax_scale
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k * scale)
    if told.softcap:
        scores = (scores / told.softcap).tanh() * told.softcap
    if slopes is not None:
        i = torch.arange(queries, device=q.device)[:, None]
        j = torch.arange(keys, device=q.device)
        away = (i + keys - queries - j).abs().to(q.dtype)
        scores = scores - slopes.to(q.dtype).expand(batch, heads)[:, :, None, None] * away
    visible = seen(queries, keys, told.causal, told.window_size).to(q.device)
    if mask is not None:
        visible = visible & mask
    scores = scores.masked_fill(~visible, -math.inf)
    chances = scores.softmax(-1).masked_fill(~visible, 0)
    used = chances if kept is None else chances * kept / (1 - dropout_p)
    return torch.einsum("bhqk,bkhd->bqhd", used.to(v.dtype), v), scores.logsumexp(-1), chances


def off(found: Tensor, true: Tensor) -> float:
    """The greatest error; infinity where one is not finite, unless it should be the same infinity."""
    assert found.shape == true.shape
    if not found.numel():
        return 0.0
    one, other = found.detach().double(), true.detach().double()
    return float((one - other).abs().masked_fill(one == other, 0).nan_to_num(math.inf, math.inf).max())


def agree(found: list[Tensor], near: list[Tensor], true: list[Tensor]) -> None:
    """Upstream's rule: an output is off by twice what the same formula in its dtype is, a gradient by three times.

    The lists hold the output and the gradients: found, by the formula in that dtype, and by the formula in float64.
    """
    for number, (one, other, truth) in enumerate(zip(found, near, true, strict=True)):
        factor, extra = (2, 1) if number == 0 else (3, 20)
        bound = factor * off(other, truth) + extra * ATOL[one.dtype]
        assert off(one, truth) <= bound, f"result {number} is off by {off(one, truth):g}, more than {bound:g}"
