"""Attention with torch's FlashAttention-2 kernel for NVIDIA GPUs, called without `scaled_dot_product_attention`.

That function gives the kernel no window and no packed sequences, and its gradients have the same bits each time only in
torch's deterministic mode. The operator behind it supports all three. ROCm's torch has the same operator with other
kernels behind it, which were never compared with a reference for these options, so it is not used there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention
from torch.nn.functional import pad

from flash_attention_amd.options import Attended, Options
from flash_attention_amd.visible import Band, band

PACKED = find_spec("torch.nn.attention.varlen") is not None
"""Whether torch offers attention of packed sequences, since 2.10. Its function runs the operator that is used here."""


class Packed(NamedTuple):
    """Where packed sequences start, and how long they are."""

    starts: tuple[Tensor, Tensor]
    """The starts of the queries and of the keys: (batch + 1,) int32, on the device of the tensors."""
    lengths: list[tuple[int, int]]
    """The numbers of queries and keys of each sequence."""


class _Call(NamedTuple):
    """The arguments that the forward and the backward operator share."""

    sizes: tuple[Tensor | None, Tensor | None, int, int]
    """The starts of packed sequences, and the longest lengths."""
    flags: tuple[float, bool]
    """The chance of dropout, and whether the mask is causal."""
    limits: dict[str, float | int | None]
    repeatable: bool


def attend(
    q: Tensor, k: Tensor, v: Tensor, options: Options, seen: Band, *, lse: bool, repeatable: bool
) -> Attended | None:
    """Attention of non-empty (batch, seqlen, heads, headdim) tensors; None if the kernel does not support the call.

    The last dimension must be contiguous. Of the options, only scale and dropout are used. With `repeatable`, gradients
    have the same bits each time.
    """
    if not _reliable(seen, [(seen.queries, seen.keys)]) or not supported(q, k, v, options):
        return None
    out, sums = _run(q, k, v, _call(options, seen, (None, None), repeatable=repeatable))
    batch, rows, heads, _ = q.shape
    return Attended(out, _sums(sums.reshape(batch, heads, -1)[:, :, :rows]) if lse else None, None)


def attend_packed(
    q: Tensor, k: Tensor, v: Tensor, options: Options, packed: Packed, *, lse: bool, repeatable: bool
) -> Attended | None:
    """`attend` for (total, heads, headdim) tensors of packed sequences. The log-sum-exp is (heads, total)."""
    queries, keys = zip(*packed.lengths, strict=True)
    # a limit that hides no key in a sequence of the longest lengths hides none in any
    seen = band(max(queries), max(keys), options.window_size, causal=options.causal)
    if not PACKED or not _reliable(seen, packed.lengths) or not supported(q, k, v, options):
        return None
    if max(queries) == 1 and min(queries) == 0:  # the kernel then takes the queries for one of each sequence
        return None
    rows, columns = sum(queries), sum(keys)
    out, sums = _run(q[:rows], k[:columns], v[:columns], _call(options, seen, packed.starts, repeatable=repeatable))
    rest = q.shape[0] - rows
    return Attended(
        pad(out, (0, 0, 0, 0, 0, rest)) if rest else out,
        pad(_sums(sums), (0, rest), value=-math.inf) if lse else None,
        None,
    )


def supported(q: Tensor, k: Tensor, v: Tensor, options: Options) -> bool:
    """Whether torch can run the kernel, and the user has not excluded it with `torch.nn.attention.sdpa_kernel`.

    The tensors are (..., headdim), and fit each other.
    """
    if not q.is_cuda or torch.version.hip is not None or not torch.backends.cuda.flash_sdp_enabled():
        return False
    if not q.stride(-1) == k.stride(-1) == v.stride(-1) == 1:
        return False
    return _supported(q.device, q.dtype, q.shape[-1], options.dropout_p > 0, needs_gradients(q, k, v))


@lru_cache(maxsize=256)
def _supported(device: torch.device, dtype: torch.dtype, width: int, dropout: bool, gradients: bool) -> bool:
    """torch's answer, from all that it depends on; it supports all lengths."""
    some = torch.empty(1, 1, 1, width, device=device, dtype=dtype, requires_grad=gradients)
    return can_use_flash_attention(SDPAParams(some, some, some, None, 0.5 if dropout else 0.0, False, False))


def needs_gradients(*tensors: Tensor) -> bool:
    """Whether a result of these tensors will have a gradient."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _reliable(seen: Band, lengths: list[tuple[int, int]]) -> bool:
    """Whether the kernel's mask is right: a window gave wrong results with more queries than keys (torch 2.11)."""
    return seen.full or seen.causal or all(queries <= keys for queries, keys in lengths)


def _call(options: Options, seen: Band, starts: tuple[Tensor | None, Tensor | None], *, repeatable: bool) -> _Call:
    limits = {
        "scale": options.scale,
        "window_size_left": seen.left,
        "window_size_right": None if seen.causal else seen.right,
    }
    return _Call((*starts, seen.queries, seen.keys), (options.dropout_p, seen.causal), limits, repeatable)


def _sums(found: Tensor) -> Tensor:
    """The kernel's log-sum-exp, which is inf where a query sees no key, with -inf there."""
    return found.masked_fill(found == math.inf, -math.inf)


def _run(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
    """The output, contiguous, and the log-sum-exp in the kernel's own shape: inf where a query sees no key."""
    width = q.shape[-1]
    if width % 8:  # the kernel supports only multiples of 8
        q, k, v = (pad(tensor, (0, -width % 8)) for tensor in (q, k, v))
    if needs_gradients(q, k, v):
        out, sums = _Flash.apply(q, k, v, call)  # type: ignore[no-untyped-call]  # torch has no types here
    else:
        out, sums, *_ = _forward(q, k, v, call)
    return (out[..., :width].contiguous() if width % 8 else out), sums


def _forward(q: Tensor, k: Tensor, v: Tensor, call: _Call) -> tuple[Tensor, ...]:
    """The output, contiguous, the log-sum-exp, and the random state of dropout."""
    found = torch.ops.aten._flash_attention_forward.default(q, k, v, *call.sizes, *call.flags, False, **call.limits)
    return found[0].contiguous(), *found[1:4]  # the output has the strides of q


class _Flash(torch.autograd.Function):
    """The operators of the forward and the backward pass."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
        out, sums, *state = _forward(q, k, v, call)
        ctx.call = call
        ctx.save_for_backward(q, k, v, out, sums, *state)
        ctx.mark_non_differentiable(sums)
        return out, sums

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        q, k, v, out, sums, *state = ctx.saved_tensors
        call = ctx.call
        with deterministic(call.repeatable):
            gradients = torch.ops.aten._flash_attention_backward.default(
                d_out, q, k, v, out, sums, *call.sizes, *call.flags, *state, **call.limits
            )
        return *gradients, None


_flag = Lock()


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Turn on torch's deterministic mode if `wanted`, and restore its state at the end.

    The mode belongs to the process. A lock keeps calls in several threads from restoring each other's state.
    """
    if not wanted:
        yield
        return
    with _flag:
        before = torch._C._get_deterministic_algorithms(), torch._C._get_deterministic_algorithms_warn_only()
        torch._C._set_deterministic_algorithms(True, warn_only=False)
        try:
            yield
        finally:
            torch._C._set_deterministic_algorithms(before[0], warn_only=before[1])
