"""Attention as a module, with masks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flash_attention_amd.attend import attend
from flash_attention_amd.functions import DIMENSIONS
from flash_attention_amd.options import check, check_batch, options


class FlashAttention(nn.Module):
    """Attention of queries, keys and values, with dropout in training mode. It has no parameters.

    The options are those of `flash_attn_func`. A mask of keys is computed by a fused kernel of torch if there is one
    and nothing else hides keys. Other masks are computed by blocks; beside the mask, the memory is linear.
    """

    alibi_slopes: Tensor | None

    def __init__(
        self,
        dropout: float = 0.0,
        causal: bool = False,
        softmax_scale: float | None = None,
        window_size: tuple[int, int] = (-1, -1),
        softcap: float = 0.0,
        alibi_slopes: Tensor | None = None,
        deterministic: bool = False,
    ) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
        self.dropout = dropout
        self.causal = causal
        self.softmax_scale = softmax_scale
        self.window_size = window_size
        self.softcap = softcap
        self.deterministic = deterministic
        self.register_buffer("alibi_slopes", alibi_slopes, persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """(batch, seqlen, heads, headdim) tensors to (batch, seqlen_q, heads, headdim).

        `mask` is bool, True where a query may see a key: (batch, seqlen_k), (batch, seqlen_q, seqlen_k) or (batch, 1
        or heads, seqlen_q, seqlen_k), in addition to causal and the window.
        A query that sees no key gets zero. Raises ValueError for a shape or device, TypeError for a dtype.
        """
        check(q, k, v, DIMENSIONS)
        check_batch(q, k)
        chosen = options(
            q,
            q.shape[0],
            dropout_p=self.dropout if self.training else 0.0,
            softmax_scale=self.softmax_scale,
            causal=self.causal,
            window_size=self.window_size,
            softcap=self.softcap,
            alibi_slopes=self.alibi_slopes,
            deterministic=self.deterministic,
        )
        return attend(q, k, v, chosen, None if mask is None else _by_head(mask, q, k)).out


def _by_head(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """A mask as (batch, 1 or heads, 1 or seqlen_q, seqlen_k). Raises ValueError or TypeError."""
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be bool, True where a query may see a key, not {mask.dtype}")
    if mask.device != q.device:
        raise ValueError(f"mask must be on {q.device} as q, not on {mask.device}")
    batch, queries, heads = q.shape[:3]
    keys = k.shape[1]
    if mask.shape == (batch, keys):
        return mask[:, None, None]
    if mask.shape == (batch, queries, keys):
        return mask[:, None]
    if mask.shape in ((batch, 1, queries, keys), (batch, heads, queries, keys)):
        return mask
    raise ValueError(
        f"mask must be ({batch}, {keys}), ({batch}, {queries}, {keys}) or ({batch}, 1 or {heads}, {queries}, {keys}), "
        f"not {tuple(mask.shape)}"
    )
