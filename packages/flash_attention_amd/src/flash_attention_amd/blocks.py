"""Attention by blocks, in plain torch operations: for what no fused kernel of torch does.

It goes over blocks of queries with the keys that they can see, so that about `TILE` scores exist at once, and computes
them again in the backward pass: beside inputs and results, the memory does not grow with the square of the sequence.
The scheme is that of FlashAttention-2 (Dao, 2023, algorithms 1 and 2), with blocks as large as torch's own matrix
products like them. The arithmetic is float32, or float64 for float64 inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flash_attention_amd.options import Attended, Options
from flash_attention_amd.visible import Band, alibi_bias, band

TILE = 1 << 19
"""Scores that exist at once on a CPU, where they should stay in its cache: 2 MiB in float32."""

GPU_TILE = 1 << 22
"""The same on a GPU, where each block costs a dozen launches: 16 MiB in float32."""

ROWS = 128
"""Queries that a block has if it can: with fewer the keys are read too often. Heads are divided among blocks before."""


@dataclass(frozen=True)
class Plan:
    """What a forward pass and its backward pass have in common."""

    options: Options
    band: Band
    batch: int
    groups: int
    """Heads of the keys."""
    times: int
    """Heads of the queries for each of them."""
    tile: int
    seed: int
    """Of dropout's numbers."""

    def chunks(self) -> Iterator[tuple[slice, slice]]:
        """Sequences, and heads of the keys, that are worked on together."""
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
        """Queries, and the keys that they may see, for that many heads of keys; the order of dropout's numbers."""
        rows = 1
        while rows < self.band.queries and self._sheets(2 * rows) >= sheets:
            rows *= 2
        for first in range(0, self.band.queries, rows):
            last = min(first + rows, self.band.queries)
            yield slice(first, last), slice(*self.band.seen(first, last))

    def _sheets(self, rows: int) -> int:
        """How many heads of keys fit into a tile with so many queries."""
        keys = self.band.keys
        if self.band.left is not None and self.band.right is not None:
            keys = min(keys, self.band.left + self.band.right + rows)
        return self.tile // max(1, self.times * rows * keys)


def attend(
    q: Tensor, k: Tensor, v: Tensor, options: Options, mask: Tensor | None = None, *, probabilities: bool = False
) -> Attended:
    """Attention of (batch, seqlen, heads, headdim) tensors with any of the options; the log-sum-exp is always there.

    `mask` is bool (batch, 1 or heads, 1 or queries, keys), True where a query may see a key. `probabilities` asks for
    the full matrix. Only the output has gradients, for q, k and v.
    """
    run = _attend
    if torch.compiler.is_compiling():
        # its loops would be unrolled, one copy of the graph for each block
        run = torch.compiler.disable(run)  # type: ignore[no-untyped-call]  # torch has no types for it
    return run(q, k, v, options, mask, probabilities)


def _attend(q: Tensor, k: Tensor, v: Tensor, options: Options, mask: Tensor | None, probabilities: bool) -> Attended:
    keys, groups = k.shape[1:3]
    plan = Plan(
        options,
        band(q.shape[1], keys, options.window_size, causal=options.causal),
        q.shape[0],
        groups,
        q.shape[2] // groups,
        TILE if q.device.type == "cpu" else GPU_TILE,
        # drawn where torch.manual_seed reaches it and a GPU need not be waited for
        int(torch.randint(1 << 62, ())) if options.dropout_p else 0,
    )
    return Attended(*_Blocks.apply(q, k, v, mask, plan, probabilities))  # type: ignore[no-untyped-call]  # nor for this


class _Blocks(torch.autograd.Function):
    """Inside, tensors are (batch, heads of keys, heads of queries for each, queries, ...), or without the third."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, plan: Plan, probabilities: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        exact = torch.float64 if q.dtype == torch.float64 else torch.float32
        batch, queries, heads, _ = q.shape
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        lse = q.new_full((batch, heads, queries), -math.inf, dtype=exact)
        shown = q.new_zeros(batch, heads, queries, k.shape[1]) if probabilities else None
        dropout = _Dropout(plan, q.device)
        with torch.autocast(q.device.type, enabled=False):
            for sheets in plan.chunks():
                keys, values = (tensor.transpose(1, 2)[sheets].to(exact) for tensor in (k, v))
                for rows, columns in plan.blocks(keys.shape[0] * keys.shape[1]):
                    if columns.start == columns.stop:
                        continue  # these queries see nothing
                    place = (*sheets, slice(None), rows)
                    scores, _ = _scores(plan, _by_group(q, plan)[place].to(exact), keys, mask, sheets, rows, columns)
                    peak = scores.amax(-1, keepdim=True)
                    peak.masked_fill_(peak == -math.inf, 0)
                    chances = scores.sub_(peak).exp_()
                    total = chances.sum(-1, keepdim=True)
                    torch.unflatten(lse, 1, (plan.groups, -1))[place] = (total.log() + peak).squeeze(-1)
                    chances /= total.masked_fill(total == 0, 1)
                    kept = dropout.kept(chances)
                    if shown is not None:
                        signed = chances if kept is None else torch.where(kept, chances, -chances)
                        torch.unflatten(shown, 1, (plan.groups, -1))[place][..., columns] = signed.to(q.dtype)
                    chances = dropout.applied(chances, kept)
                    _by_group(out, plan)[place] = _product(chances, values[:, :, columns]).to(q.dtype)
        ctx.plan = plan
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.mark_non_differentiable(lse, *(() if shown is None else (shown,)))
        return out, lse, shown

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        q, k, v, mask, out, lse = ctx.saved_tensors
        plan = ctx.plan
        dq, dk, dv = (torch.zeros_like(tensor, memory_format=torch.contiguous_format) for tensor in (q, k, v))
        dropout = _Dropout(plan, q.device)
        with torch.autocast(q.device.type, enabled=False):
            for sheets in plan.chunks():
                keys, values = (tensor.transpose(1, 2)[sheets].to(lse.dtype) for tensor in (k, v))
                d_keys, d_values = torch.zeros_like(keys), torch.zeros_like(values)
                for rows, columns in plan.blocks(keys.shape[0] * keys.shape[1]):
                    if columns.start == columns.stop:
                        continue
                    place = (*sheets, slice(None), rows)
                    queries, outs, d_outs = (_by_group(x, plan)[place].to(lse.dtype) for x in (q, out, d_out))
                    scores, bend = _scores(plan, queries, keys, mask, sheets, rows, columns)
                    peak = torch.unflatten(lse, 1, (plan.groups, -1))[place][..., None]
                    chances = scores.sub_(peak.masked_fill(peak == -math.inf, 0)).exp_()
                    kept = dropout.kept(chances)
                    d_values[:, :, columns] += _sum(dropout.applied(chances, kept), d_outs)
                    d_chances = _product(d_outs, values[:, :, columns].mT)
                    d_scores = (
                        dropout.applied(d_chances, kept).sub_((outs * d_outs).sum(-1, keepdim=True)).mul_(chances)
                    )
                    if bend is not None:
                        d_scores *= bend
                    d_scores *= plan.options.scale
                    d_keys[:, :, columns] += _sum(d_scores, queries)
                    _by_group(dq, plan)[place] = _product(d_scores, keys[:, :, columns]).to(q.dtype)
                dk.transpose(1, 2)[sheets] = d_keys.to(k.dtype)
                dv.transpose(1, 2)[sheets] = d_values.to(v.dtype)
        return dq, dk, dv, None, None, None


class _Dropout:
    """Dropout's numbers, the same in both passes, which ask for them in one order."""

    def __init__(self, plan: Plan, device: torch.device) -> None:
        self.chance = plan.options.dropout_p
        self.numbers = torch.Generator(device).manual_seed(plan.seed) if self.chance else None

    def kept(self, chances: Tensor) -> Tensor | None:
        """Which probabilities of a block are kept; None for all."""
        if self.numbers is None:
            return None
        return torch.rand(chances.shape, generator=self.numbers, device=chances.device) >= self.chance

    def applied(self, tensor: Tensor, kept: Tensor | None) -> Tensor:
        """A block without what was dropped, scaled up for it."""
        return tensor if kept is None else tensor * kept / (1 - self.chance)


def _scores(
    plan: Plan,
    queries: Tensor,
    keys: Tensor,
    mask: Tensor | None,
    sheets: tuple[slice, slice],
    rows: slice,
    columns: slice,
) -> tuple[Tensor, Tensor | None]:
    """The scores of a block, -inf where a key is not seen, and the derivative of softcap at each."""
    options, bend = plan.options, None
    scores = _product(queries * options.scale, keys[:, :, columns].mT)
    if options.softcap:
        scores = scores.div_(options.softcap).tanh_()
        bend = 1 - scores.square()
        scores *= options.softcap
    area = (rows.start, rows.stop), (columns.start, columns.stop)
    if options.alibi_slopes is not None:
        slopes = torch.unflatten(options.alibi_slopes.to(scores.dtype), 1, (plan.groups, -1))[:, :, :, None, None]
        slopes = slopes[sheets if len(slopes) > 1 else (slice(None), sheets[1])]
        scores += alibi_bias(slopes, plan.band.distance(*area, scores.device))
    hidden = plan.band.hidden(*area, scores.device)
    if hidden is not None:
        scores.masked_fill_(hidden, -math.inf)
    if mask is not None:
        by_head, by_row = mask.shape[1] > 1, mask.shape[2] > 1
        mask = torch.unflatten(mask, 1, (plan.groups, -1) if by_head else (1, 1))
        place = (
            sheets[0],
            sheets[1] if by_head else slice(None),
            slice(None),
            rows if by_row else slice(None),
            columns,
        )
        scores.masked_fill_(~mask[place], -math.inf)
    return scores, bend


def _by_group(tensor: Tensor, plan: Plan) -> Tensor:
    """(batch, seqlen, heads, headdim) as (batch, groups, times, seqlen, headdim), the same memory."""
    return torch.unflatten(tensor, 2, (plan.groups, plan.times)).permute(0, 2, 3, 1, 4)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """(batch, groups, times, n, m) and (batch, groups, m, p), one matrix product for each group of heads."""
    return torch.unflatten(left.flatten(2, 3) @ right, 2, left.shape[2:4])


def _sum(left: Tensor, right: Tensor) -> Tensor:
    """(batch, groups, times, n, m) and (batch, groups, times, n, p) to (batch, groups, m, p): summed over times, n."""
    return left.flatten(2, 3).mT @ right.flatten(2, 3)
