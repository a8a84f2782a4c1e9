"""The functions of flash-attention-amd, and the two of flash-attn that diffusers imports with them."""

from __future__ import annotations

from functools import wraps
from typing import Any, NoReturn

import flash_attention_amd
import torch
from flash_attention_amd import (
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from flash_attention_amd.options import Result
from torch import Tensor

__all__ = [
    "_wrapped_flash_attn_backward",
    "_wrapped_flash_attn_forward",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]


@wraps(flash_attention_amd.flash_attn_func)
def flash_attn_func(q: Tensor, *given: Any, **options: Any) -> Result:
    """The function of flash-attention-amd, but a single output has the strides of `q`: ComfyUI's operator says so."""
    found = flash_attention_amd.flash_attn_func(q, *given, **options)
    return found if isinstance(found, tuple) or q.is_contiguous() else torch.empty_like(q).copy_(found)


def _wrapped_flash_attn_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    return_softmax: bool,  # noqa: ARG001  # the probabilities that dropout kept
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the output and the log-sum-exp, without gradients; then two empty tensors for what dropout would need."""
    if dropout_p:
        raise NotImplementedError("dropout between GPUs: set it to 0")
    window = window_size_left, window_size_right
    with torch.no_grad():
        out, lse = flash_attn_func(  # type: ignore[misc]  # as requested
            q, k, v, 0.0, softmax_scale, causal, window, softcap, alibi_slopes, return_softmax_lse=True
        )
    return out, lse, q.new_empty(0), q.new_empty(0)


def _wrapped_flash_attn_backward(*_given: object) -> NoReturn:
    """Refuse: attention that several GPUs share has no backward pass here."""
    raise NotImplementedError("no gradients of attention that several GPUs share: train without context parallelism")
