"""Attention by blocks in plain torch operations, for calls that no fused kernel of torch supports.

Each block of queries is computed with the keys it can see, so about `TILE` scores exist at once; the backward pass
recomputes them. The memory beside inputs and results therefore does not grow with the square of the sequence.
The algorithm is FlashAttention-2 (Dao, 2023, algorithms 1 and 2), with blocks large enough for torch's matrix products.
The arithmetic is float32, or float64 for float64 inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flash_attention_amd.options import Attended, Options
from flash_attention_amd.options import exact as dtype_of_sums
from flash_attention_amd.visible import Band, band

TILE = 1 << 19
"""Scores in memory at once on a CPU: 2 MiB in float32, which fit into its cache."""

GPU_TILE = 1 << 22
"""The same on a GPU: 16 MiB in float32, because each block costs a dozen kernel launches."""

ROWS = 128
"""Preferred queries per block: with fewer, the keys are read too often. Splitting the heads comes first."""


@dataclass(frozen=True)
class BlockLayout:
    """The division into blocks, shared by the forward and the backward pass."""

    options: Options
    band: Band
    batch: int
    groups: int
    """Number of key heads."""
    times: int
    """Query heads for each key head."""
    tile: int
    seed: int
    """Seed of the dropout generator."""

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Slices of sequences and key heads to compute together."""
        together = max(1, self._sheets(min(ROWS, self.band.queries)))
        if together >= self.groups:
            step = together // self.groups
            yield from (
                (slice(at, min(at + step, self.batch)), slice(0, self.groups)) for at in range(0, self.batch, step)
            )
            return
        for one in range(self.batch):
            for at in range(0, self.groups, together):
                yield slice(one, one + 1), slice(at, min(at + together, self.groups))

    def blocks(self, sheets: int) -> Iterator[tuple[slice, slice]]:
        """Slices of queries and of the keys they can see, for `sheets` key heads. Queries that see no key are left out.

        Dropout depends on the order: both passes must draw the same numbers.
        """
        rows = 1
        while rows < self.band.queries and self._sheets(2 * rows) >= sheets:
            rows *= 2
        for first in range(self.band.blind, self.band.queries, rows):
            last = min(first + rows, self.band.queries)
            yield slice(first, last), slice(*self.band.seen(first, last))

    def _sheets(self, rows: int) -> int:
        """How many key heads fit into a tile with `rows` queries."""
        keys = self.band.keys
        if self.band.left is not None and self.band.right is not None:
            keys = min(keys, self.band.left + self.band.right + rows)
        return self.tile // max(1, self.times * rows * keys)


def attend(
    q: Tensor, k: Tensor, v: Tensor, options: Options, mask: Tensor | None = None, *, probabilities: bool = False
) -> Attended:
    """Attention of (batch, seqlen, heads, headdim) tensors with any options. The log-sum-exp is always returned.

    `mask` is bool (batch, 1 or heads, 1 or queries, keys), True where a query may see a key. `probabilities` also
    returns the full matrix. Only the output has a gradient, with respect to q, k and v.
    """
    keys, groups = k.shape[1:3]
    plan = BlockLayout(
        options,
        band(q.shape[1], keys, options.window_size, causal=options.causal),
        q.shape[0],
        groups,
        q.shape[2] // groups,
        TILE if q.device.type == "cpu" else GPU_TILE,
        # drawn on the CPU: torch.manual_seed controls it, and no GPU synchronization is needed
        int(torch.randint(1 << 62, ())) if options.dropout_p else 0,
    )
    return Attended(*_Blocks.apply(q, k, v, mask, plan, probabilities))  # type: ignore[no-untyped-call]  # torch has no types here


class _Blocks(torch.autograd.Function):
    """The forward and backward pass.

    On a GPU, a block costs more in launches than in arithmetic, so as much as possible is done once per chunk.
    Inside, tensors are (key heads, rows, ...), where the rows of all query heads that share keys are joined, or as
    `_by_group` returns them: (batch, key heads, query heads per key head, queries, ...).
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, plan: BlockLayout, probabilities: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        exact = dtype_of_sums(q.dtype)
        batch, queries, heads, _ = q.shape
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        lse = q.new_full((batch, heads, queries), -math.inf, dtype=exact)
        shown = q.new_zeros(batch, heads, queries, k.shape[1]) if probabilities else None
        dropout = _Dropout(plan, q.device)
        with torch.autocast(q.device.type, enabled=False):
            for sheets in plan.chunks():
                asked, outs = (_by_group(tensor, plan)[sheets] for tensor in (q, out))
                sums = torch.unflatten(lse, 1, (plan.groups, -1))[sheets]
                scorer = _Scorer(plan, k, mask, sheets, exact)
                values = _sheets(v, sheets, exact)
                for rows, columns in plan.blocks(len(values)):
                    scores, _ = scorer.scores(_rows(asked, rows, exact), rows, columns)
                    peak = scores.amax(-1, keepdim=True)
                    if mask is not None:
                        peak.masked_fill_(peak == -math.inf, 0)
                    probs = scores.sub_(peak).exp_()
                    total = probs.sum(-1, keepdim=True)
                    place = sums[:, :, :, rows]
                    place.copy_(total.log().add_(peak).view(place.shape))
                    if mask is not None:
                        total.masked_fill_(total == 0, 1)
                    kept = dropout.kept(probs)
                    if shown is not None:
                        signed = probs if kept is None else torch.where(kept, probs, -probs)
                        matrix = torch.unflatten(shown, 1, (plan.groups, -1))[sheets][:, :, :, rows, columns]
                        matrix.copy_((signed / total).view(matrix.shape))
                    if kept is not None:
                        probs.mul_(kept)
                        total *= 1 - dropout.chance
                    place = outs[:, :, :, rows]
                    place.copy_(torch.bmm(probs, values[:, columns]).div_(total).view(place.shape))
        ctx.plan = plan
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.mark_non_differentiable(lse, *(() if shown is None else (shown,)))
        return out, lse, shown

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, lse = ctx.saved_tensors
        plan, exact = ctx.plan, lse.dtype
        dq, dk, dv = (torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v))
        dropout = _Dropout(plan, q.device)
        with torch.autocast(q.device.type, enabled=False):
            for sheets in plan.chunks():
                asked, outs, d_outs, d_asked = (_by_group(tensor, plan)[sheets] for tensor in (q, out, d_out, dq))
                sums = torch.unflatten(lse, 1, (plan.groups, -1))[sheets][..., None]
                if mask is not None:
                    sums = sums.masked_fill(sums == -math.inf, 0)
                means = (outs.to(exact) * d_outs).sum(-1, keepdim=True)
                scorer = _Scorer(plan, k, mask, sheets, exact)
                values = _sheets(v, sheets, exact)
                d_keys, d_values = torch.zeros_like(values), torch.zeros_like(values)
                for rows, columns in plan.blocks(len(values)):
                    queries, d_rows = (_rows(tensor, rows, exact) for tensor in (asked, d_outs))
                    scores, bent = scorer.scores(queries, rows, columns, bent=True)
                    probs = scores.sub_(_rows(sums, rows, exact)).exp_()
                    kept = dropout.kept(probs)
                    if kept is not None:
                        d_rows = d_rows / (1 - dropout.chance)
                    d_values[:, columns].baddbmm_((probs if kept is None else probs * kept).mT, d_rows)
                    d_scores = torch.bmm(d_rows, values[:, columns].mT)
                    if kept is not None:
                        d_scores.mul_(kept)
                    d_scores.sub_(_rows(means, rows, exact)).mul_(probs)
                    if bent is not None:
                        torch.ops.aten.tanh_backward.grad_input(d_scores, bent, grad_input=d_scores)
                    d_keys[:, columns].baddbmm_(d_scores.mT, queries)
                    found = torch.bmm(d_scores, scorer.keys[:, columns])
                    place = d_asked[:, :, :, rows]
                    place.copy_((found.mul_(plan.options.softcap) if bent is not None else found).view(place.shape))
                for whole, part in ((dk, d_keys.mul_(plan.options.scale)), (dv, d_values)):
                    place = whole.transpose(1, 2)[sheets]
                    place.copy_(part.view(place.shape))
        return dq, dk, dv, None, None, None


class _Dropout:
    """The random numbers of dropout. Both passes draw them in the same order."""

    def __init__(self, plan: BlockLayout, device: torch.device) -> None:
        self.chance = plan.options.dropout_p
        self.numbers = torch.Generator(device).manual_seed(plan.seed) if self.chance else None

    def kept(self, probs: Tensor) -> Tensor | None:
        """Which probabilities of a block are kept; None if all are."""
        if self.numbers is None:
            return None
        return torch.rand(probs.shape, generator=self.numbers, device=probs.device) >= self.chance


class _Scorer:
    """Computes the scores of the blocks of a chunk."""

    def __init__(
        self, plan: BlockLayout, k: Tensor, mask: Tensor | None, sheets: tuple[slice, slice], exact: torch.dtype
    ) -> None:
        self.plan = plan
        self.keys = _sheets(k, sheets, exact) * (plan.options.scale / (plan.options.softcap or 1))
        self.shape = tuple(part.stop - part.start for part in sheets)
        self.slopes = self.mask = None
        if plan.options.alibi_slopes is not None:
            slopes = torch.atleast_2d(plan.options.alibi_slopes.to(exact))
            slopes = torch.unflatten(slopes, 1, (plan.groups, -1))[..., None, None]
            self.slopes = slopes[sheets if len(slopes) > 1 else (slice(None), sheets[1])]
        if mask is not None:
            by_head = mask.shape[1] > 1
            divided = torch.unflatten(mask, 1, (plan.groups, -1) if by_head else (1, 1))
            self.mask = divided[sheets if by_head else sheets[:1]]

    def scores(
        self, queries: Tensor, rows: slice, columns: slice, *, bent: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The scores of a block, -inf for hidden keys. With `bent` and a softcap, also their tanh."""
        plan, tanh = self.plan, None
        scores = torch.bmm(queries, self.keys[:, columns].mT)
        if plan.options.softcap:
            tanh = scores.tanh_()
            scores = tanh * plan.options.softcap if bent else tanh.mul_(plan.options.softcap)
        area = (rows.start, rows.stop), (columns.start, columns.stop)
        divided = scores.view(*self.shape, plan.times, rows.stop - rows.start, columns.stop - columns.start)
        if self.slopes is not None:
            divided.addcmul_(self.slopes, plan.band.distance(*area, self.slopes), value=-1)
        for some, hidden in plan.band.hidden(*area, scores.device):
            divided[..., some].masked_fill_(hidden, -math.inf)
        if self.mask is not None:
            by_row = self.mask.shape[3] > 1
            divided.masked_fill_(~self.mask[:, :, :, rows if by_row else slice(None), columns], -math.inf)
        return scores, tanh if bent else None


def _by_group(tensor: Tensor, plan: BlockLayout) -> Tensor:
    """View (batch, seqlen, heads, headdim) as (batch, groups, times, seqlen, headdim)."""
    return torch.unflatten(tensor, 2, (plan.groups, plan.times)).permute(0, 2, 3, 1, 4)


def _sheets(tensor: Tensor, sheets: tuple[slice, slice], exact: torch.dtype) -> Tensor:
    """The chunk of (batch, keys, groups, headdim) as (sheets, keys, headdim)."""
    return _cast(tensor.transpose(1, 2)[sheets], exact).flatten(0, 1)


def _rows(tensor: Tensor, rows: slice, exact: torch.dtype) -> Tensor:
    """The block `rows` of (batch, groups, times, queries, n) as (sheets, times * rows, n)."""
    return _cast(tensor[:, :, :, rows], exact).flatten(2, 3).flatten(0, 1)


def _cast(tensor: Tensor, exact: torch.dtype) -> Tensor:
    """Cast to `exact`. A copy is contiguous, so that dimensions can be flattened without a second copy."""
    return tensor.to(exact, memory_format=torch.contiguous_format)
