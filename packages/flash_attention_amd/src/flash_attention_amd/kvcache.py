"""flash-attn's function for decoding with a key-value cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flash_attention_amd import operators
from flash_attention_amd.attend import attend
from flash_attention_amd.functions import DIMENSIONS
from flash_attention_amd.options import Options, check, check_batch, exact, options
from flash_attention_amd.rotary import rotate
from flash_attention_amd.sequences import check_pages, from_pages, runs


@dataclass(frozen=True)
class Cache:
    """The keys and values of earlier steps."""

    k: Tensor
    """(sequences, rows, heads_k, headdim), or (pages, page size, heads_k, headdim)."""
    v: Tensor
    indices: Tensor | None
    """The cache sequence of each batch entry, (batch,); None for the same index."""
    table: Tensor | None
    """The page numbers of each sequence, (batch, pages per sequence); None without pages."""

    @property
    def room(self) -> int:
        """The number of rows per sequence."""
        return self.k.shape[1] * (1 if self.table is None else self.table.shape[1])

    def rows(self, batch: slice, start: int, end: int) -> tuple[Tensor, Tensor]:
        """The keys and values of sequences, (batch, end - start, heads_k, headdim)."""
        if self.table is not None:
            table = self.table[batch]
            return from_pages(self.k, table, end)[:, start:], from_pages(self.v, table, end)[:, start:]
        if self.indices is not None:
            chosen = self.indices[batch]
            return self.k[:, start:end][chosen], self.v[:, start:end][chosen]
        return self.k[batch, start:end], self.v[batch, start:end]

    def put(self, k: Tensor, v: Tensor, positions: Tensor) -> None:
        """Write keys and values (batch, new, heads_k, headdim) to the rows `positions` (batch, new)."""
        if self.table is not None:
            size = self.k.shape[1]
            place = self.table.long().gather(1, positions // size), positions % size
        else:
            of_batch = torch.arange(len(k), device=k.device) if self.indices is None else self.indices
            place = of_batch[:, None], positions
        self.k[place] = k
        self.v[place] = v


@torch.no_grad()
def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of new queries to all keys in a cache. New keys and values are first written to the cache in place.

    Adjacent batch entries with the same number of keys are computed in one call. The lengths are read from the GPU
    once, unless they are one int. There is no backward pass, as in flash-attn.

    Arguments, beside those of `flash_attn_func`:
        q: (batch, seqlen_q, heads, headdim).
        k_cache, v_cache: (batch_cache, seqlen_cache, heads_k, headdim), or with block_table (blocks, block size,
            heads_k, headdim), with any block size.
        k, v: (batch, seqlen_new, heads_k, headdim): written to the rows starting at cache_seqlens.
        rotary_cos, rotary_sin: (positions, rotary_dim / 2): k is rotated by its rows in the cache, q by the rows from
            cache_seqlens on if causal or with a window, else all of q by row cache_seqlens. Only with k and v.
        cache_seqlens: one int, or (batch,) integers: the rows in use before; None without k is all.
        cache_batch_idx: (batch,) integers: the cache sequence of each batch entry. Not with block_table.
        cache_leftpad: (batch,) integers: the first row that holds a key.
        block_table: (batch, blocks of a sequence) integers: which blocks hold the rows of each sequence.
        rotary_interleaved: dimensions 0 and 1, 2 and 3 ... are rotated together; else i and i + rotary_dim / 2.
        num_splits: ignored.

    Returns out (batch, seqlen_q, heads, headdim), or (out, softmax_lse) with softmax_lse (batch, heads, seqlen_q).

    Raises ValueError for a shape, device, length or option, TypeError for a dtype.
    """
    del num_splits
    if operators.traced(q):
        length, lengths = (None, cache_seqlens) if isinstance(cache_seqlens, Tensor) else (cache_seqlens, None)
        tensors = k, v, rotary_cos, rotary_sin, lengths, cache_batch_idx, cache_leftpad, block_table, alibi_slopes
        given = softmax_scale, causal, *window_size, softcap, rotary_interleaved, return_softmax_lse
        out, sums = _operator(q, k_cache, v_cache, *tensors, length, *given)
        return (out, sums) if return_softmax_lse else out
    check(q, k_cache, v_cache, DIMENSIONS)
    chosen = options(
        q,
        q.shape[0],
        dropout_p=0.0,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        deterministic=False,
    )
    _check_given(k, v, rotary_cos, rotary_sin, cache_seqlens)
    cache = _cache(k_cache, v_cache, cache_batch_idx, block_table, q.shape[0])
    ends = _numbers("cache_seqlens", cache_seqlens, q.shape[0], cache.room)
    first = _numbers("cache_leftpad", cache_leftpad, q.shape[0], 0)
    if k is not None and v is not None:
        check(q, k, v, DIMENSIONS)
        check_batch(q, k)
        starts, ends = ends, [length + k.shape[1] for length in ends]
        _check_room(starts, ends, cache)
        at = torch.tensor(starts, dtype=torch.long, device=q.device)[:, None]
        rows = at + torch.arange(k.shape[1], device=q.device)
        if rotary_cos is not None and rotary_sin is not None:
            ahead = q.shape[1] if causal or any(size >= 0 for size in window_size) else 1
            _check_angles(rotary_cos, rotary_sin, q.shape[-1], max(starts, default=0) + max(k.shape[1], ahead))
            steps = at + torch.arange(ahead, device=q.device)
            k = rotate(k, rotary_cos, rotary_sin, rows, interleaved=rotary_interleaved)
            q = rotate(q, rotary_cos, rotary_sin, steps, interleaved=rotary_interleaved)
        cache.put(k, v, rows)
    _check_room(first, ends, cache)
    return _attend_each(q, cache, list(zip(first, ends, strict=True)), chosen, lse=return_softmax_lse)


def _attend_each(
    q: Tensor, cache: Cache, rows: list[tuple[int, int]], chosen: Options, *, lse: bool
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of each query to the rows (first, end) of its sequence."""
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    sums = q.new_zeros(q.shape[0], q.shape[2], q.shape[1], dtype=exact(q.dtype))
    for run, (first, end) in runs(rows):
        slopes = chosen.alibi_slopes
        own = chosen if slopes is None or slopes.dim() == 1 else chosen._replace(alibi_slopes=slopes[run])
        found = attend(q[run], *cache.rows(run, first, end), own, lse=lse)
        out[run] = found.out
        if found.lse is not None:
            sums[run] = found.lse
    return (out, sums) if lse else out


def _cache(k: Tensor, v: Tensor, indices: Tensor | None, table: Tensor | None, batch: int) -> Cache:
    """Check the cache tensors. Raises ValueError or TypeError."""
    if table is not None and indices is not None:
        raise ValueError("cache_batch_idx and block_table cannot be given both")
    if table is not None:
        check_pages(k, table, batch, 0)
    elif indices is not None:
        _check_integers("cache_batch_idx", indices, batch)
    elif k.shape[0] < batch:
        raise ValueError(f"k_cache must have at least {batch} sequences, the batch of q, not {k.shape[0]}")
    return Cache(k, v, None if indices is None else indices.long(), table)


def _numbers(name: str, given: int | Tensor | None, batch: int, default: int) -> list[int]:
    """One number for each sequence, read from the device. Raises ValueError or TypeError."""
    if isinstance(given, Tensor):
        _check_integers(name, given, batch)
        return [int(number) for number in given.tolist()]
    return [default if given is None else int(given)] * batch


def _check_integers(name: str, tensor: Tensor, batch: int) -> None:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        raise TypeError(f"{name} must have an integer dtype, not {tensor.dtype}")
    if tensor.shape != (batch,):
        raise ValueError(f"{name} must be ({batch},), one for each sequence of q, not {tuple(tensor.shape)}")


def _check_given(
    k: Tensor | None, v: Tensor | None, cos: Tensor | None, sin: Tensor | None, cache_seqlens: int | Tensor | None
) -> None:
    """Raises ValueError if arguments that belong together are incomplete."""
    if (k is None) != (v is None):
        raise ValueError("k and v must be given both or neither")
    if k is not None and cache_seqlens is None:
        raise ValueError("cache_seqlens must be given with k and v: they are written to the rows from there on")
    if (cos is None) != (sin is None) or (cos is not None and k is None):
        raise ValueError("rotary_cos and rotary_sin must be given both, and only with k and v")


def _check_room(first: list[int], ends: list[int], cache: Cache) -> None:
    """Raises ValueError if the cache does not have these rows."""
    for start, end in zip(first, ends, strict=True):
        if not 0 <= start <= end <= cache.room:
            raise ValueError(f"the cache has {cache.room} rows a sequence; rows {start} to {end} of one are asked for")


def _check_angles(cos: Tensor, sin: Tensor, width: int, positions: int) -> None:
    """Raises ValueError if the angle tables do not fit."""
    if cos.dim() != 2 or cos.shape != sin.shape or 2 * cos.shape[1] > width:
        raise ValueError(
            f"rotary_cos and rotary_sin must be (positions, rotary_dim / 2), rotary_dim at most {width}; "
            f"found {tuple(cos.shape)} and {tuple(sin.shape)}"
        )
    if cos.shape[0] < positions:
        raise ValueError(f"rotary_cos and rotary_sin must have {positions} positions, not {cos.shape[0]}")


def _compute(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *given: Any,
) -> tuple[Tensor, Tensor]:
    k, v, cos, sin, lengths, indices, padding, table, slopes, length, scale, causal, left, right, softcap, *flags = (
        given
    )
    found = flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k,
        v,
        cos,
        sin,
        length if lengths is None else lengths,
        indices,
        padding,
        table,
        scale,
        causal,
        (left, right),
        softcap,
        flags[0],
        slopes,
        return_softmax_lse=flags[1],
    )
    return found if isinstance(found, tuple) else (found, q.new_empty(0))


def _fake(q: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    batch, queries, heads, _ = q.shape
    sums = q.new_empty(batch, heads, queries, dtype=exact(q.dtype)) if given[-1] else q.new_empty(0)
    return torch.empty_like(q, memory_format=torch.contiguous_format), sums


_operator = operators.define(
    "attention_with_cache(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? k, Tensor? v, Tensor? cos, "
    "Tensor? sin, Tensor? lengths, Tensor? indices, Tensor? padding, Tensor? table, Tensor? slopes, int? length, "
    "float? scale, bool causal, int left, int right, float softcap, bool interleaved, bool lse) -> (Tensor, Tensor)",
    _compute,
    _fake,
)
