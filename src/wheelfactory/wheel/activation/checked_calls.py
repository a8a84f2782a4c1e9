"""Passes to the Triton kernels only calls that they compute correctly; added by wheelfactory.

Upstream's file of this name is empty. Every way to the backend imports this package first, so the functions of
`interface_fa` are replaced here: they copy tensors to a layout that the kernels read correctly, or raise an error. With
FLASH_ATTENTION_AMD_FALLBACK=1, flash-attention-amd computes what has a window or softcap.
"""

import functools
import importlib
import os

import torch

from . import interface_fa

# 2.7.4.post1 has an older backward pass, without this function
_OLDER = not hasattr(interface_fa, "attention_prefill_backward_triton_split_impl")
_LARGEST_OFFSET = 2**31 - 1
_VARIABLE = "FLASH_ATTENTION_AMD_FALLBACK"
_FALLBACK = f"flash-attention-amd with {_VARIABLE}=1"


def _refuse(option, why, models, instead):
    raise NotImplementedError(
        f"the Triton kernels of this flash-attn {why} {option}, so this call would give wrong numbers"
        f"{f' (models such as {models} need it)' if models else ''}: use {instead}"
    )


def _check_options(left, right, softcap, queries, keys, causal, paged=None, padded=None):
    """Raise for options that the kernels ignore; a window that hides no key is allowed."""
    if softcap:  # before the window, which Gemma 2 has too: 'sdpa' in transformers ignores softcap
        instead = f"{_FALLBACK}, or attn_implementation='eager' in transformers"
        _refuse(f"softcap={softcap}", "ignore", "Gemma 2", instead)
    if 0 <= left < keys - 1 or (0 <= right < queries - 1 and not causal):
        instead = f"the CK wheel, {_FALLBACK}, or attn_implementation='sdpa' in transformers"
        _refuse(f"window_size=({left}, {right})", "ignore", "Mistral", instead)
    if paged is not None:
        _refuse("block_table", "ignore", "", "the CK wheel, flash-attention-amd, or a cache without pages")
    if padded is not None:
        _refuse("cache_leftpad and seqused_k", "ignore", "", "a cache without padding on the left")


def _goes_to_fallback(chance, *options):
    """Whether flash-attention-amd computes a call with options that the kernels ignore: if `_VARIABLE` is 1."""
    try:
        _check_options(*options)
    except NotImplementedError:
        if chance or os.environ.get(_VARIABLE) != "1":
            raise
        return True
    return False


def _compute_by_fallback(name, q, k, v, out, *more, **options):
    """Return what a forward pass of the kernels returns. The last two, for dropout, are as upstream's graphs expect."""
    compute = getattr(importlib.import_module("flash_attention_amd"), name)
    found, sums = compute(q, k, v, *more, **options, return_softmax_lse=True)
    return found if out is None else out.copy_(found), sums, q.new_empty(0), q.new_zeros(2, dtype=torch.int64)


def _differentiate_by_fallback(name, d_out, q, k, v, out, gradients, *more, **options):
    """Return what a backward pass of the kernels returns. It computes the forward pass again."""
    compute = getattr(importlib.import_module("flash_attention_amd"), name)
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    # upstream calls this in an operator of its own, in which torch records nothing for autograd
    hidden = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"):
        hidden = hidden.remove(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), hidden), torch.enable_grad():
        found = torch.autograd.grad(compute(*leaves, *more, **options), leaves, d_out)
    found = (new if dx is None else dx.copy_(new) for dx, new in zip(gradients, found, strict=True))
    return *found, (d_out.float() * out).sum(-1).mT.contiguous()


def _named(scale, causal, left, right, softcap, slopes):
    """The options as functions of flash-attn take them."""
    return {
        "softmax_scale": scale, "causal": causal, "window_size": (left, right), "softcap": softcap,
        "alibi_slopes": slopes,
    }  # fmt: skip


def _check_tensors(*tensors):
    """Raise for tensors that the kernels compute inexactly, or whose elements 32-bit offsets cannot reach."""
    if tensors[0].dtype in (torch.float32, torch.float64):
        why = "multiply with the precision of xf32, 10 bits, on some GPUs for"
        _refuse(f"{tensors[0].dtype}", why, "", "torch.float16, torch.bfloat16, or scaled_dot_product_attention")
    for tensor in tensors:
        # no offset is beyond the storage, whose size is known without arithmetic for each dimension
        if tensor is not None and tensor.untyped_storage().nbytes() > _LARGEST_OFFSET:
            last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
            if last > _LARGEST_OFFSET:
                _refuse_offsets(f"a tensor of shape {tuple(tensor.shape)}")


def _refuse_offsets(what):
    _refuse(what, "use 32-bit offsets, too short for", "", "smaller batches, or the CK wheel")


def _check_dropout(chance, batch, heads, queries, keys):
    if chance and _OLDER:
        _refuse("dropout_p", "do not support", "", "flash-attn 2.8.3, or the CK wheel")
    if chance and batch * heads * queries * keys > _LARGEST_OFFSET:
        _refuse_offsets(f"dropout over {queries} x {keys} scores")


def _of_each_sequence(slopes, batch):
    """Return slopes as (batch, heads), the only shape that the kernels take; flash-attn takes (heads,) too."""
    return slopes.expand(batch, -1) if slopes is not None and slopes.dim() == 1 else slopes


def _fwd(compute):
    @functools.wraps(compute)
    def fwd(q, k, v, out, slopes, chance, scale, causal, left, right, softcap, *more, **named):
        if _goes_to_fallback(chance, left, right, softcap, q.shape[1], k.shape[1], causal):
            options = _named(scale, causal, left, right, softcap, slopes)
            return _compute_by_fallback("flash_attn_func", q, k, v, out, **options)
        _check_tensors(q, k, v, out)
        _check_dropout(chance, q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        slopes = _of_each_sequence(slopes, q.shape[0])
        return compute(q, k, v, out, slopes, chance, scale, causal, left, right, softcap, *more, **named)

    return fwd


def _varlen_fwd(compute):
    @functools.wraps(compute)
    def varlen_fwd(
        q, k, v, out, starts_q, starts_k, used, padded, paged, slopes, queries, keys, chance, scale, zero, causal,
        left, right, softcap, *more, **named,
    ):  # fmt: skip
        if paged is padded is used is None and _goes_to_fallback(chance, left, right, softcap, queries, keys, causal):
            options = _named(scale, causal, left, right, softcap, slopes)
            lengths = starts_q, starts_k, queries, keys
            return _compute_by_fallback("flash_attn_varlen_func", q, k, v, out, *lengths, **options)
        _check_options(left, right, softcap, queries, keys, causal, paged, padded if used is None else used)
        _check_tensors(q, k, v, out)
        _check_dropout(chance, len(starts_q) - 1, q.shape[1], queries, keys)
        slopes = _of_each_sequence(slopes, len(starts_q) - 1)
        found, sums, *rest = compute(
            q, k, v, out, starts_q, starts_k, used, padded, paged, slopes, queries, keys, chance, scale, zero, causal,
            left, right, softcap, *more, **named,
        )  # fmt: skip
        return found, sums.mT.contiguous(), *rest  # the kernels write (queries, heads)

    return varlen_fwd


def _with_one_layout(compute, d_out, q, k, v, out, sums, gradients, *more, **named):
    """Call a backward pass with tensors of layouts that it reads correctly.

    It reads the gradient of the output with the strides of the output, and writes both gradients of keys and values
    with the strides of the first, but with the head stride of the keys.
    """
    _check_tensors(d_out, q, k, v, out, *gradients)
    if d_out.stride() != out.stride():
        d_out, out = d_out.contiguous(), out.contiguous()
    dq, dk, dv = (torch.empty_like(x) if dx is None else dx for x, dx in zip((q, k, v), gradients, strict=True))
    written = dk, dv
    if dk.stride() != dv.stride() or dk.stride(-2) != k.stride(-2):
        k = k.contiguous()
        dk, dv = torch.empty_like(k), torch.empty_like(k)
    found = compute(d_out, q, k, v, out, sums, dq, dk, dv, *more, **named)
    if written[0] is dk:
        return found
    return found[0], written[0].copy_(dk), written[1].copy_(dv), *found[3:]


def _check_gradients(q, k, slopes, queries, keys):
    """Raise for gradients that 2.7.4.post1 computes wrongly: for grouped heads it writes past their end.

    It adds up one gradient of all queries for each block of keys.
    """
    blocks = -(-keys // (32 if min(queries, keys) <= 32 else 64))
    if _OLDER and blocks * q.numel() > _LARGEST_OFFSET:
        _refuse_offsets(f"gradients over {keys} keys")
    if _OLDER and q.shape[-2] != k.shape[-2]:
        _refuse("grouped heads in the backward pass", "do not support", "Llama 3", "flash-attn 2.8.3, or the CK wheel")
    if _OLDER and slopes is not None:
        _refuse("alibi_slopes in the backward pass", "ignore", "", "flash-attn 2.8.3, or the CK wheel")


def _bwd(compute):
    @functools.wraps(compute)
    def bwd(d_out, q, k, v, out, sums, dq, dk, dv, slopes, chance, scale, causal, left, right, softcap, *more, **named):
        if _goes_to_fallback(chance, left, right, softcap, q.shape[1], k.shape[1], causal):
            options = _named(scale, causal, left, right, softcap, slopes)
            return _differentiate_by_fallback("flash_attn_func", d_out, q, k, v, out, (dq, dk, dv), **options)
        _check_gradients(q, k, slopes, q.shape[1], k.shape[1])
        more = (_of_each_sequence(slopes, q.shape[0]), chance, scale, causal, left, right, softcap, *more)
        return _with_one_layout(compute, d_out, q, k, v, out, sums, (dq, dk, dv), *more, **named)

    return bwd


def _varlen_bwd(compute):
    @functools.wraps(compute)
    def varlen_bwd(
        d_out, q, k, v, out, sums, dq, dk, dv, starts_q, starts_k, slopes, queries, keys, chance, scale, zero, causal,
        left, right, softcap, *more, **named,
    ):  # fmt: skip
        if _goes_to_fallback(chance, left, right, softcap, queries, keys, causal):
            options = _named(scale, causal, left, right, softcap, slopes)
            given = d_out, q, k, v, out, (dq, dk, dv), starts_q, starts_k, queries, keys
            return _differentiate_by_fallback("flash_attn_varlen_func", *given, **options)
        _check_gradients(q, k, slopes, queries, keys)
        slopes = _of_each_sequence(slopes, len(starts_q) - 1)
        more = (starts_q, starts_k, slopes, queries, keys, chance, scale, zero, causal, left, right, softcap, *more)
        return _with_one_layout(compute, d_out, q, k, v, out, sums.mT.contiguous(), (dq, dk, dv), *more, **named)

    return varlen_bwd


def _fwd_kvcache(compute):
    @functools.wraps(compute)
    def fwd_kvcache(
        q, keys, values, k, v, lengths, cos, sin, rows, padded, paged, slopes, out, scale, causal, left, right,
        softcap, *more, **named,
    ):  # fmt: skip
        _check_options(left, right, softcap, q.shape[1], keys.shape[1], causal, paged, padded)
        _check_tensors(q, keys, values, k, v, out)
        if _OLDER and cos is not None:
            _refuse("rotary_cos", "ignore", "", "flash-attn 2.8.3, the CK wheel, or keys that are rotated before")
        if lengths is None and k is not None:
            raise ValueError("k and v are given without cache_seqlens: pass the lengths of the cache before them")
        slopes = _of_each_sequence(slopes, q.shape[0])
        found, sums = compute(
            q, keys, values, k, v, lengths, cos, sin, rows, padded, paged, slopes, out, scale, causal, left, right,
            softcap, *more, **named,
        )  # fmt: skip
        return found, sums.view(q.shape[0], q.shape[2], q.shape[1])

    return fwd_kvcache


for _wrap in (_fwd, _varlen_fwd, _bwd, _varlen_bwd, _fwd_kvcache):
    _name = _wrap.__name__[1:]
    setattr(interface_fa, _name, _wrap(getattr(interface_fa, _name)))
