"""Attention by the fused kernels of torch: scaled_dot_product_attention, where it does not fall back.

torch falls back without a word to a formula that makes the full matrix of scores, so it is asked before what it would
choose. Which kernel is preferred (cuDNN's, FlashAttention-2, CUTLASS's; on ROCm AOTriton's) is torch's own choice, and
the user's, by `torch.nn.attention.sdpa_kernel` and `torch.backends.cuda.enable_*_sdp`.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.functional import pad, scaled_dot_product_attention

from flash_attention_amd.options import Attended, Options
from flash_attention_amd.visible import Band


class Kernel(IntEnum):
    """What torch chooses from, as `torch.nn.attention.SDPBackend` numbers it."""

    PLAIN = 0
    """The formula in plain operations."""
    FLASH = 1
    EFFICIENT = 2
    CUDNN = 3


DEVICES = ("cpu", "cuda")
"""Kinds of devices that torch is asked about; ROCm's are called cuda."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, options: Options, seen: Band, mask: Tensor | None = None, *, lse: bool
) -> Attended | None:
    """Attention of (batch, seqlen, heads, headdim) tensors, of which none is empty, by a fused kernel.

    The band is full or causal; of the options only scale and dropout are looked at. A mask, bool (batch, 1, 1, keys),
    goes with a full band alone, and without the log-sum-exp. None if torch has no kernel for it, or none that gives
    the log-sum-exp, if that is asked for.
    """
    if q.device.type not in DEVICES:
        return None
    if seen.causal and seen.queries > seen.keys:
        return _after_blind(q, k, v, options, seen, lse=lse)
    queries, keys, values = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    grouped = q.shape[2] != k.shape[2]
    if seen.causal and seen.shift:
        return _lower_right(queries, keys, values, options, grouped=grouped)
    blind = None
    if mask is not None:
        blind = ~mask.any(-1, keepdim=True)
        mask = mask | blind  # what a kernel makes of a row that sees nothing differs; here it sees all, until the end
    kernel = _choice(queries, keys, values, mask, options, causal=seen.causal, grouped=grouped)
    if grouped and not kernel:
        keys, values = (tensor.repeat_interleave(q.shape[2] // k.shape[2], 1) for tensor in (keys, values))
        grouped = False
        kernel = _choice(queries, keys, values, mask, options, causal=seen.causal, grouped=False)
    if not kernel:
        return None
    if lse:
        return _with_lse(kernel, queries, keys, values, options, causal=seen.causal)
    with _no_autocast(q):
        out = scaled_dot_product_attention(
            queries, keys, values, mask, options.dropout_p, seen.causal, scale=options.scale, enable_gqa=grouped
        )
    out = out.transpose(1, 2).contiguous()
    return Attended(out if blind is None else out.masked_fill(blind, 0), None, None)


def _no_autocast(q: Tensor) -> AbstractContextManager[object]:
    """Keeps autocast from changing the dtype, which costs nothing where there is none."""
    kind = q.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _choice(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, options: Options, *, causal: bool, grouped: bool
) -> int:
    """The kernel that scaled_dot_product_attention would take."""
    return int(
        torch._fused_sdp_choice(
            queries, keys, values, mask, options.dropout_p, causal, scale=options.scale, enable_gqa=grouped
        )
    )


def _after_blind(q: Tensor, k: Tensor, v: Tensor, options: Options, seen: Band, *, lse: bool) -> Attended | None:
    """Causal attention of more queries than keys: the first queries see nothing, for the rest the matrix is square."""
    blind = -seen.shift
    found = attend(q[:, blind:], k, v, options, Band(seen.keys, seen.keys, None, 0), lse=lse)
    if found is None:
        return None
    sums = None if found.lse is None else pad(found.lse, (blind, 0), value=-math.inf)
    return Attended(pad(found.out, (0, 0, 0, 0, blind, 0)), sums, None)


def _lower_right(queries: Tensor, keys: Tensor, values: Tensor, options: Options, *, grouped: bool) -> Attended | None:
    """Causal attention of fewer queries than keys.

    scaled_dot_product_attention defines is_causal as aligned top-left and gives such a call to the plain formula. The
    FlashAttention-2 kernel of CUDA aligns it bottom-right: `torch.nn.attention.bias.causal_lower_right` calls it as it
    is called here. Of no other kernel torch says that.
    """
    if not queries.is_cuda or torch.version.hip is not None:
        return None
    params = SDPAParams(queries, keys, values, None, options.dropout_p, False, grouped)
    if not can_use_flash_attention(params):
        return None
    return _with_lse(Kernel.FLASH, queries, keys, values, options, causal=True)


def _with_lse(
    kernel: int, queries: Tensor, keys: Tensor, values: Tensor, options: Options, *, causal: bool
) -> Attended | None:
    """Attention by the operator that scaled_dot_product_attention would call, which gives the log-sum-exp too.

    Not on ROCm: what its kernels give as log-sum-exp was never held against a reference on an AMD GPU.
    """
    if torch.version.hip is not None or kernel not in tuple(Kernel):
        return None
    out, sums = _operator(kernel, queries, keys, values, options, causal=causal)
    out = out[..., : queries.shape[-1]].transpose(1, 2).contiguous()
    batch, rows, heads, _ = out.shape
    # the kernels give (batch, heads, queries), with more queries to a full block, or with a last dimension of one
    return Attended(out, sums.detach().reshape(batch, heads, -1)[:, :, :rows].contiguous(), None)


def _operator(
    kernel: int, queries: Tensor, keys: Tensor, values: Tensor, options: Options, *, causal: bool
) -> tuple[Tensor, Tensor]:
    """The output, with the head dimension perhaps filled up, and the log-sum-exp as the kernel gives it."""
    scale, told = options.scale, (options.dropout_p, causal)
    if queries.device.type == "cpu":
        return torch._scaled_dot_product_flash_attention_for_cpu(queries, keys, values, *told, scale=scale)
    if kernel == Kernel.FLASH:
        q, k, v = (pad(x, (0, -x.shape[-1] % 8)) for x in (queries, keys, values))  # it takes multiples of 8 alone
        return torch._scaled_dot_product_flash_attention(q, k, v, *told, scale=scale)[:2]
    if kernel == Kernel.EFFICIENT:
        return torch._scaled_dot_product_efficient_attention(queries, keys, values, None, True, *told, scale=scale)[:2]
    return torch._scaled_dot_product_cudnn_attention(queries, keys, values, None, True, *told, scale=scale)[:2]
