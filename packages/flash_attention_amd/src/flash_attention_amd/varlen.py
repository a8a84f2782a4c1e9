"""flash-attn's functions for packed sequences of different lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from flash_attention_amd import operators
from flash_attention_amd.attend import attend, attend_packed
from flash_attention_amd.flash import Packed
from flash_attention_amd.options import Attended, Options, Result, check, exact, options, result, unpacked
from flash_attention_amd.sequences import check_pages, from_pages, runs

DIMENSIONS = "total, heads, headdim"


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    *,
    return_softmax_lse: bool = False,
) -> Result:
    """`flash_attn_func` for each of many sequences, packed without padding.

    On NVIDIA GPUs, torch 2.10 and newer compute all of them in one call, unless softcap, ALiBi slopes or a block table
    are given. Elsewhere, one call computes adjacent sequences of the same lengths. The starts are read from the GPU
    once.

    Arguments, beside those of `flash_attn_func`:
        q: (total_q, heads, headdim).
        k, v: (total_k, heads_k, headdim), or with block_table (blocks, block size, heads_k, headdim).
        cu_seqlens_q, cu_seqlens_k: (batch + 1,) integers: where each sequence starts, and where the last one ends.
        max_seqlen_q, max_seqlen_k: at least the longest lengths; they give the probabilities their shape.
        block_table: (batch, blocks of a sequence) integers: which blocks hold the keys of each sequence.

    Returns:
        out: (total_q, heads, headdim); zero for rows after the last sequence.
        softmax_lse: (heads, total_q).
        probabilities: (batch, heads, max_seqlen_q, max_seqlen_k), zero beyond a sequence.

    Raises ValueError for a shape, device, length or option, TypeError for a dtype.
    """
    if block_table is None:
        check(q, k, v, DIMENSIONS)
    else:
        check(q[:, None], k, v, "blocks, block size, heads, headdim")
    chosen = options(
        q,
        len(cu_seqlens_q) - 1,
        dropout_p=dropout_p,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        deterministic=deterministic,
    )
    given = cu_seqlens_q, cu_seqlens_k, block_table, max_seqlen_q, max_seqlen_k
    requested = {"lse": return_softmax_lse or return_attn_probs, "probabilities": return_attn_probs}
    if operators.traced(q):
        computed = _operator(q, k, v, *given, *operators.flat(chosen, **requested))
        found = operators.attended(computed, **requested)
    else:
        found = _attend(q, k, v, *given, chosen, **requested)
    return result(found, lse=return_softmax_lse, probabilities=return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    return_softmax_lse: bool = False,
) -> Result:
    """`flash_attn_varlen_func` for keys and values in one tensor, (total_k, 2, heads_k, headdim), without a copy."""
    k, v = unpacked(kv, "kv", 2, DIMENSIONS)
    return flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
        return_softmax_lse=return_softmax_lse,
    )


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    *,
    return_softmax_lse: bool = False,
) -> Result:
    """`flash_attn_varlen_func` for all three in one tensor, (total, 3, heads, headdim), which are not copied."""
    q, k, v = unpacked(qkv, "qkv", 3, DIMENSIONS)
    return flash_attn_varlen_func(
        q,
        k,
        v,
        cu_seqlens,
        cu_seqlens,
        max_seqlen,
        max_seqlen,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
        return_softmax_lse=return_softmax_lse,
    )


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    block_table: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    chosen: Options,
    *,
    lse: bool,
    probabilities: bool,
) -> Attended:
    """Attention of packed sequences, whose tensors fit each other. Raises ValueError for a length, or a block table."""
    queries, keys = _lengths(cu_seqlens_q, cu_seqlens_k)
    _check_lengths("q", queries, max_seqlen_q, q.shape[0])
    _check_lengths("k", keys, max_seqlen_k, None if block_table is not None else k.shape[0])
    if block_table is not None:
        check_pages(k, block_table, len(queries), max(keys, default=0))
    lengths = list(zip(queries, keys, strict=True))
    if len(set(lengths)) > 1 and block_table is None and not probabilities:  # one length is one batch
        starts = cu_seqlens_q.to(q.device, torch.int32), cu_seqlens_k.to(q.device, torch.int32)
        found = attend_packed(q, k, v, chosen, Packed(starts, lengths), lse=lse)
        if found is not None:
            return found
    return _attend_each(
        q,
        lengths,
        _keys(k, v, [(run, seen) for run, (_, seen) in runs(lengths)], block_table),
        chosen,
        lse=lse,
        probabilities=(max_seqlen_q, max_seqlen_k) if probabilities else None,
    )


def _lengths(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor) -> tuple[list[int], list[int]]:
    """The lengths of the sequences, with one read from the device. Raises ValueError or TypeError."""
    starts = cu_seqlens_q, cu_seqlens_k
    for name, tensor in zip(("cu_seqlens_q", "cu_seqlens_k"), starts, strict=True):
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            raise TypeError(f"{name} must have an integer dtype, not {tensor.dtype}")
        if tensor.dim() != 1 or not len(tensor):
            raise ValueError(f"{name} must be (batch + 1,), not {tuple(tensor.shape)}")
    if len(cu_seqlens_q) != len(cu_seqlens_k):
        raise ValueError(
            f"cu_seqlens_q and cu_seqlens_k must be of one length, not {len(cu_seqlens_q)} and {len(cu_seqlens_k)}"
        )
    both = torch.stack([tensor.long() for tensor in starts]).tolist()
    lengths = []
    for name, numbers in zip(("cu_seqlens_q", "cu_seqlens_k"), both, strict=True):
        if numbers[0]:
            raise ValueError(f"{name} must start with 0, not {numbers[0]}")
        lengths.append([after - before for before, after in pairwise(numbers)])
        if any(length < 0 for length in lengths[-1]):
            raise ValueError(f"{name} must not fall: {numbers}")
    return lengths[0], lengths[1]


def _check_lengths(name: str, lengths: list[int], longest: int, rows: int | None) -> None:
    """Raises ValueError if the lengths exceed the rows of the tensor, or the longest length that the caller gave."""
    if rows is not None and sum(lengths) > rows:
        raise ValueError(f"cu_seqlens_{name} must end at {rows} or before, the rows of {name}, not at {sum(lengths)}")
    if max(lengths, default=0) > longest:
        raise ValueError(f"max_seqlen_{name} must be at least {max(lengths)}, the longest sequence, not {longest}")


def _attend_each(
    q: Tensor,
    lengths: list[tuple[int, int]],
    pairs: Iterator[tuple[Tensor, Tensor]],
    chosen: Options,
    *,
    lse: bool,
    probabilities: tuple[int, int] | None,
) -> Attended:
    """Attention of each group of sequences; `pairs` has the keys and values of each group.

    `probabilities` has the longest lengths; None if the probabilities are not requested.
    """
    together = list(runs(lengths))
    queries = _parts(q, [(run, length) for run, (length, _) in together])
    shown = None if probabilities is None else q.new_zeros(len(lengths), q.shape[1], *probabilities)
    outs, sums = [], []
    for (run, (length, seen)), part, (keys, values) in zip(together, queries, pairs, strict=False):
        slopes = chosen.alibi_slopes
        found = attend(
            part,
            keys,
            values,
            chosen if slopes is None or slopes.dim() == 1 else chosen._replace(alibi_slopes=slopes[run]),
            lse=lse,
            probabilities=shown is not None,
        )
        outs.append(found.out.flatten(0, 1))
        if found.lse is not None:
            sums.append(found.lse.transpose(0, 1).flatten(1))
        if shown is not None and found.probabilities is not None:
            shown[run, :, :length, :seen] = found.probabilities
    rest = q.shape[0] - sum(length for length, _ in lengths)
    if rest or not outs:
        outs.append(torch.zeros_like(q[:rest], memory_format=torch.contiguous_format))
        sums.append(q.new_full((q.shape[1], rest), -math.inf, dtype=sums[0].dtype if sums else torch.float32))
    return Attended(_joined(outs, 0), _joined(sums, 1) if lse else None, shown)


def _keys(
    k: Tensor, v: Tensor, together: list[tuple[slice, int]], block_table: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The keys and values of each group, as a batch."""
    if block_table is None:
        yield from zip(_parts(k, together), _parts(v, together), strict=True)
        return
    for run, length in together:
        yield from_pages(k, block_table[run], length), from_pages(v, block_table[run], length)


def _parts(tensor: Tensor, sizes: list[tuple[slice, int]]) -> list[Tensor]:
    """Split (total, ...) into one batch per group, with a single operation whose backward pass is single too."""
    counts = [(run.stop - run.start, length) for run, length in sizes]
    used = [count * length for count, length in counts]
    parts = torch.split(tensor, [*used, tensor.shape[0] - sum(used)])
    return [
        torch.unflatten(part, 0, shape) for part, shape in zip(parts, counts, strict=False)
    ]  # the last part holds unused rows


def _joined(parts: list[Tensor], dimension: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dimension)


def _compute(q: Tensor, k: Tensor, v: Tensor, *given: Any) -> operators.Computed:
    options, requested = operators.unflat(*given[5:])
    starts_q, starts_k, table, longest_q, longest_k = given[:5]
    found = _attend(q, k, v, starts_q, starts_k, table, longest_q, longest_k, options, **requested)
    return operators.packed(found)


def _fake(q: Tensor, _k: Tensor, _v: Tensor, *given: Any) -> operators.Computed:
    starts, _, _, *longest = given[:5]
    _, requested = operators.unflat(*given[5:])
    total, heads, _ = q.shape
    sums = q.new_empty(heads, total, dtype=exact(q.dtype))
    shown = q.new_empty(starts.shape[0] - 1, heads, *longest)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    return operators.packed(operators.attended((out, sums, shown), **requested))


_operator = operators.define_attention(
    "attention_packed",
    "Tensor starts_q, Tensor starts_k, Tensor? block_table, int longest_q, int longest_k",
    _compute,
    _fake,
)
