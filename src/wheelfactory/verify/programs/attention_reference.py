"""Attention in float64, and the same formula with every intermediate result rounded to a dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from attention_cases import AttentionCase  # type: ignore[import-not-found]

Tensor: TypeAlias = Any
Rounding: TypeAlias = Callable[[Tensor], Tensor]
Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

DROPOUT = 0.3


def alibi_slopes(heads: int, device: Any) -> Tensor:
    """Return a slope for each head."""
    return 0.5 ** torch.arange(1, heads + 1, dtype=torch.float32, device=device)


def rotary_table(rows: int, dim: int, dtype: Any, device: Any) -> tuple[Tensor, Tensor]:
    """Return the cosine and the sine for each position and pair of elements, (rows, dim / 2)."""
    steps = 100.0 ** -(torch.arange(dim // 2, dtype=torch.float32, device=device) * 2 / dim)
    angles = torch.arange(rows, dtype=torch.float32, device=device)[:, None] * steps
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(rows: Tensor, positions: Tensor, dtype: Any, rounded: Rounding) -> Tensor:
    """Rotate neighbouring elements of (length, heads, dim) rows at these positions, by a table of a dtype."""
    table = rotary_table(int(positions.max()) + 1, rows.shape[-1], dtype, rows.device)
    cos, sin = (values[positions, None].to(rows.dtype) for values in table)
    even, odd = rows[..., ::2], rows[..., 1::2]
    return rounded(torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2))


def _score(queries: Tensor, keys: Tensor, case: AttentionCase, rounded: Rounding) -> tuple[Tensor, Tensor]:
    """Return the scores of one sequence, (heads, queries, keys), and which of them are hidden."""
    scores = rounded(queries @ keys.mT * (case.scale or case.dim**-0.5))
    if case.softcap:
        scores = rounded((scores / case.softcap).tanh() * case.softcap)
    length, seen = scores.shape[-2:]
    positions = torch.arange(length, device=scores.device)[:, None] + seen - length
    distance = positions - torch.arange(seen, device=scores.device)  # of a key before its query, greater than 0
    if case.alibi:
        slopes = alibi_slopes(case.heads, scores.device).double()[:, None, None]
        scores = rounded(scores - slopes * distance.abs())
    hidden = (distance < 0) & case.causal
    before, after = case.window
    hidden |= ((distance > before) & (before >= 0)) | ((distance < -after) & (after >= 0))
    return scores, hidden


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, case: AttentionCase, rounded: Rounding, kept: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return softmax(Q K^T scale) V of one sequence, (queries, heads, dim), and the log-sum-exp, (heads, queries).

    The last query sees all keys; a query without keys gives 0 and -inf. `kept` has the weights that dropout keeps.
    """
    # the values have the dtype already, so this rounds only their gradients: of each head, and the sum of a group
    queries, keys, values = (rounded(rows.transpose(0, 1)) for rows in (queries, keys, values))
    keys, values = (rounded(rows.repeat_interleave(case.heads // case.groups, 0)) for rows in (keys, values))
    scores, hidden = _score(queries, keys, case, rounded)
    blind = hidden.all(-1)
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)  # not -inf: a row of it has NaN gradients
    weights = scores.softmax(-1).masked_fill(blind[:, None], 0)
    if kept is not None:
        weights = weights * kept / (1 - DROPOUT)
    sums = scores.logsumexp(-1).masked_fill(blind, -torch.inf)
    return rounded(rounded(weights) @ values).transpose(0, 1), sums


def by_sequence(case: AttentionCase, dtype: Any, rounded: Rounding, kept: Tensor | None = None) -> Attention:
    """Return the reference function for all sequences of a case with inputs of a dtype."""

    def function(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        rows = [case.cache or length for length in case.keys]
        parts = zip(queries.split(case.queries), keys.split(rows), values.split(rows), case.keys, strict=True)
        found = []
        for q, k, v, length in parts:
            seen = k[case.padding : length]
            if case.rotary:
                old = length - case.appended
                positions = old + torch.arange(case.appended, device=k.device)
                seen = torch.cat([seen[:old], rotate(seen[old:], positions, dtype, rounded)])
                # without a mask, all queries are at one position
                q = rotate(q, positions if case.causal else positions.clamp(max=old), dtype, rounded)
            found.append(attention(q, seen, v[case.padding : length], case, rounded, kept))
        outputs, sums = zip(*found, strict=True)
        return torch.cat(outputs), torch.cat(sums, -1)

    return function


def rounding_to(dtype: Any) -> Rounding:
    """Return a function that rounds a float64 tensor to a dtype, and its gradient too.

    For float32 to the ten bits of float16, to which matrix instructions may round (xf32 of gfx942, TF32).
    """
    dtype = torch.float16 if dtype is torch.float32 else dtype

    def rounded(result: Tensor) -> Tensor:
        near = result + (result.to(dtype).to(result.dtype) - result).detach()
        if near.requires_grad:
            near.register_hook(lambda gradient: gradient.to(dtype).to(gradient.dtype))
        return near

    return rounded
