"""Attention for models of transformers. Importing this module registers it, under the name `NAME`.

    import flash_attention_amd.transformers

    model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="amd_fallback")

Sliding windows, softcap, padding, packed sequences, caches and gradients are computed as by transformers' own eager
attention, in any dtype. Attention sinks (`s_aux`) raise an error.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface

from flash_attention_amd.functions import flash_attn_func
from flash_attention_amd.varlen import flash_attn_varlen_func

NAME = "amd_fallback"
"""The value of `attn_implementation`. transformers looks for kernels on its hub where a name has
``flash_attention`` in it."""


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    position_ids: Tensor | None = None,
    s_aux: Tensor | None = None,
    **_others: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it: query, key and value are (batch, heads, seqlen, headdim).

    `attention_mask` is what `mask` returned: (batch, keys), True for tokens, or None without padding. A window of n
    shows n keys, the query's own among them. Returns (batch, seqlen, heads, headdim of value), and no probabilities.
    Raises ValueError for an attention sink.
    """
    if s_aux is not None:
        raise ValueError(f"{NAME} does not support attention sinks (s_aux): use attn_implementation='eager'")
    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    width = v.shape[-1]
    v = pad(v, (0, q.shape[-1] - width))
    shown = -1 if sliding_window is None else sliding_window - 1
    options: dict[str, Any] = {
        "dropout_p": dropout,
        "softmax_scale": scaling,
        "causal": bool(module.is_causal if is_causal is None else is_causal),
        "window_size": (shown, shown),
        "softcap": softcap or 0.0,
    }
    if attention_mask is not None:
        out = _padded(q, k, v, attention_mask, options)
    elif (starts := _packed_starts(position_ids, q, k)) is not None:
        longest = q.shape[1] if torch.compiler.is_compiling() else int(starts.diff().max())
        found = flash_attn_varlen_func(q[0], k[0], v[0], starts, starts, longest, longest, **options)
        out = cast(Tensor, found)[None]
    else:
        out = cast(Tensor, flash_attn_func(q, k, v, **options))
    return out[..., :width], None


def mask(*, kv_length: int, attention_mask: Tensor | None = None, **_others: Any) -> Tensor | None:
    """The mask that transformers passes to `attend`: which keys are tokens; None if all are.

    Causality and windows are options of `attend`. The mask of a static cache is shorter than its keys.
    """
    if attention_mask is None:
        return None
    seen = attention_mask[:, -kv_length:].bool()
    return None if seen.shape[1] == kv_length and bool(seen.all()) else seen


def _padded(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, options: dict[str, Any]) -> Tensor:
    """Attention of sequences with padding. The rows of queries that are padding are zero."""
    queries = q.shape[1]
    k, v = k[:, : seen.shape[1]], v[:, : seen.shape[1]]
    # the last query goes with the last key; those of a step of decoding are all tokens
    asked = seen[:, -queries:] if queries <= seen.shape[1] else pad(seen, (queries - seen.shape[1], 0))
    lengths = asked.sum(1), seen.sum(1)
    starts = [pad(length.cumsum(0), (1, 0)).int() for length in lengths]
    longest = [int(length.max()) for length in lengths]
    found = cast(Tensor, flash_attn_varlen_func(q[asked], k[seen], v[seen], *starts, *longest, **options))
    return torch.zeros_like(q, memory_format=torch.contiguous_format).index_put((asked,), found)


def _packed_starts(position_ids: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Where each sequence starts, and the end, if one row holds several sequences: positions begin anew.

    Their number is not known in a graph, which therefore always gets the starts.
    """
    if position_ids is None or q.shape[0] != 1 or q.shape[1] != k.shape[1] or position_ids.shape[-1] != q.shape[1]:
        return None
    (begins,) = (position_ids.flatten().diff() != 1).nonzero(as_tuple=True)
    if not torch.compiler.is_compiling() and not len(begins):
        return None
    return torch.cat([begins.new_zeros(1), begins + 1, begins.new_tensor([q.shape[1]])]).int()


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, mask)
