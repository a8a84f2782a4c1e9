"""Attention with torch's fused kernels: scaled_dot_product_attention, when it does not fall back.

torch silently falls back to a formula with the full matrix of scores, so its choice is queried before the call. torch
prefers a kernel (cuDNN, FlashAttention-2, CUTLASS; on ROCm AOTriton), and users can change the choice with
`torch.nn.attention.sdpa_kernel` and `torch.backends.cuda.enable_*_sdp`.
"""

from __future__ import annotations

import math
from enum import IntEnum

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from flash_attention_amd import flash
from flash_attention_amd.layout import from_kernel, to_kernel
from flash_attention_amd.options import Attended, Options
from flash_attention_amd.visible import Band


class Kernel(IntEnum):
    """torch's kernels, numbered as in `torch.nn.attention.SDPBackend`."""

    PLAIN = 0
    """Plain operations with the full matrix of scores."""
    FLASH = 1
    EFFICIENT = 2
    CUDNN = 3


DEVICES = ("cpu", "cuda")
"""Device types with fused kernels. torch calls ROCm devices cuda."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, options: Options, seen: Band, mask: Tensor | None = None, *, lse: bool
) -> Attended | None:
    """Attention of non-empty (batch, seqlen, heads, headdim) tensors with a fused kernel; None if torch has none.

    The band `seen` must be full or causal. Of the options, only scale and dropout are used. A mask, bool (batch, 1, 1,
    keys), requires a full band and no log-sum-exp. With `lse`, the kernel must return the log-sum-exp.
    """
    kind = q.device.type
    if kind not in DEVICES:
        return None
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):  # it would change the dtype
            return attend(q, k, v, options, seen, mask, lse=lse)
    causal = seen.causal
    if causal and seen.queries > seen.keys:
        return _after_blind(q, k, v, options, seen, lse=lse)
    queries, keys, values = to_kernel(q, k, v)
    grouped = q.shape[2] != k.shape[2]
    if causal and seen.shift:
        # scaled_dot_product_attention aligns is_causal top-left; of the kernels, torch documents bottom-right for this
        # one alone: `torch.nn.attention.bias.causal_lower_right`
        supported = flash.supported(q, k, v, options)
        return _with_lse(Kernel.FLASH, queries, keys, values, options, causal=True) if supported else None
    blind = None
    if mask is not None:
        blind = ~mask.any(-1, keepdim=True)
        mask = (
            mask | blind
        )  # kernels disagree about rows that see no key, so these rows see all keys here and are zeroed at the end
    kernel = _choice(queries, keys, values, mask, options, causal=causal, grouped=grouped)
    if grouped and not kernel:
        keys, values = (tensor.repeat_interleave(q.shape[2] // k.shape[2], 1) for tensor in (keys, values))
        grouped = False
        kernel = _choice(queries, keys, values, mask, options, causal=causal, grouped=False)
    if not kernel:
        return None
    if lse:
        return _with_lse(kernel, queries, keys, values, options, causal=causal)
    out = scaled_dot_product_attention(
        queries, keys, values, mask, options.dropout_p, causal, scale=options.scale, enable_gqa=grouped
    )
    out = from_kernel(out)
    return Attended(out if blind is None else out.masked_fill(blind, 0), None, None)


def _choice(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, options: Options, *, causal: bool, grouped: bool
) -> int:
    """The kernel that scaled_dot_product_attention would choose."""
    if torch.compiler.is_compiling():  # torch cannot trace the function, whose result is a number
        gradients = flash.needs_gradients(queries, keys, values)
        chance, width = options.dropout_p, queries.shape[-1]
        return _choice_of_kind(queries.device, queries.dtype, width, chance, causal, grouped, gradients)
    return int(
        torch._fused_sdp_choice(
            queries, keys, values, mask, options.dropout_p, causal, scale=options.scale, enable_gqa=grouped
        )
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch has no types here
def _choice_of_kind(
    device: torch.device, dtype: torch.dtype, width: int, chance: float, causal: bool, grouped: bool, gradients: bool
) -> int:
    """`_choice` for a square problem without a mask, from all that it depends on; kernels support all lengths."""
    queries, keys = (
        torch.empty(1, heads, 16, width, device=device, dtype=dtype, requires_grad=gradients)
        for heads in (2 if grouped else 1, 1)
    )
    return int(torch._fused_sdp_choice(queries, keys, keys, None, chance, causal, scale=None, enable_gqa=grouped))


def _after_blind(q: Tensor, k: Tensor, v: Tensor, options: Options, seen: Band, *, lse: bool) -> Attended | None:
    """Causal attention of more queries than keys: the first queries see no key, the rest is a square problem."""
    blind = -seen.shift
    found = attend(q[:, blind:], k, v, options, Band(seen.keys, seen.keys, None, 0), lse=lse)
    if found is None:
        return None
    sums = None if found.lse is None else pad(found.lse, (blind, 0), value=-math.inf)
    return Attended(pad(found.out, (0, 0, 0, 0, blind, 0)), sums, None)


def _with_lse(
    kernel: int, queries: Tensor, keys: Tensor, values: Tensor, options: Options, *, causal: bool
) -> Attended | None:
    """Attention with the operator behind scaled_dot_product_attention, which also returns the log-sum-exp."""
    # not on ROCm: the log-sum-exp of its kernels was never compared with a reference on an AMD GPU
    if torch.version.hip is not None or kernel not in tuple(Kernel):
        return None
    out, sums = _operator(kernel, queries, keys, values, options, causal=causal)
    out = from_kernel(out[..., : queries.shape[-1]])
    batch, rows, heads, _ = out.shape
    # kernels return (batch, heads, queries), some padded to full blocks of queries, some with a last dimension of 1
    return Attended(out, sums.detach().reshape(batch, heads, -1)[:, :, :rows].contiguous(), None)


def _operator(
    kernel: int, queries: Tensor, keys: Tensor, values: Tensor, options: Options, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """The output, possibly with a padded head dimension, and the log-sum-exp in the kernel's own shape."""
    scale, flags = options.scale, (options.dropout_p, causal)
    if queries.device.type == "cpu":
        return torch._scaled_dot_product_flash_attention_for_cpu(queries, keys, values, *flags, scale=scale)
    if kernel == Kernel.FLASH:
        q, k, v = (
            pad(x, (0, -x.shape[-1] % 8)) for x in (queries, keys, values)
        )  # the kernel supports only multiples of 8
        return torch._scaled_dot_product_flash_attention(q, k, v, *flags, scale=scale)[:2]
    if kernel == Kernel.EFFICIENT:
        return torch._scaled_dot_product_efficient_attention(queries, keys, values, None, True, *flags, scale=scale)[:2]
    return torch._scaled_dot_product_cudnn_attention(queries, keys, values, None, True, *flags, scale=scale)[:2]
