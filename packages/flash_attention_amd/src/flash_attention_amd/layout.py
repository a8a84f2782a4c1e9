"""The layout of the tensors that torch's fused kernels read.

On ROCm, two faults of kernels were reported: wrong values where V is not contiguous and Q and K are (ROCm/pytorch issue
3230), and wrong gradients where the gradient of the output has other strides than the output (ROCm/aotriton issue 236).
So kernels get tensors of one layout there.

On NVIDIA GPUs, torch 2.11 keeps the cuDNN graph of a backward pass by the strides of Q, K and V only, and reads the
next gradient of the output with the strides of the first (200 of 500 mixes of layouts were wrong on an H100). So on
every GPU the gradient has the strides of the output. On a CPU nothing is copied.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def to_kernel(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(batch, seqlen, heads, headdim) tensors as kernels take them, (batch, heads, seqlen, headdim).

    They are views; on ROCm contiguous, so copies where the views are not.
    """
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    if torch.version.hip is not None:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    return q, k, v


def from_kernel(out: Tensor) -> Tensor:
    """The output of a kernel, (batch, heads, seqlen, headdim), as contiguous (batch, seqlen, heads, headdim).

    On a GPU, the gradient that the kernel's backward pass gets has the strides of `out`.
    """
    if (out.is_cuda or torch.version.hip is not None) and out.requires_grad:
        out = _Output.apply(out)  # type: ignore[no-untyped-call]  # torch has no types here
    return out.transpose(1, 2).contiguous()


class _Output(torch.autograd.Function):
    """The identity, whose gradient has the strides of its input."""

    @staticmethod
    def forward(out: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004  # named by torch
        ctx.strides = inputs[0].stride()

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Tensor:
        # not `contiguous()`: kernels choose the layout of their output, and d_out can be expanded, with strides of 0
        if d_out.stride() == ctx.strides:
            return d_out
        return d_out.new_empty_strided(d_out.shape, ctx.strides).copy_(d_out)
