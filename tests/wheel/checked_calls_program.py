"""Call an installed Triton wheel in Triton's interpreter, and print what each fault's smallest case gives, as JSON."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton.runtime.interpreter as interpreter  # type: ignore[import-not-found]

_custom_op = torch.library.custom_op
torch.library.custom_op = lambda *names, **options: _custom_op(*names, **{**options, "device_types": None})

from flash_attn import (  # type: ignore[import-not-found]  # noqa: E402
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)

NAN = float("nan")


def normal(*shape: int) -> Any:
    return torch.randn(*shape).half()


def attention(q: Any, k: Any, v: Any, *, causal: bool = False) -> Any:
    """The reference for (batch, seqlen, heads, headdim) tensors, 0 in rows without keys."""
    scores = scores_of(q, k, causal=causal)
    shares = (scores - scores.logsumexp(-1, keepdim=True)).nan_to_num(nan=-torch.inf).exp()
    return (shares @ v.double().transpose(1, 2)).transpose(1, 2)


def scores_of(q: Any, k: Any, *, causal: bool = False) -> Any:
    q, k = (x.double().transpose(1, 2) for x in (q, k))
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1) & causal
    return (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)


def error_of_gradients(q: Any, k: Any, v: Any, d_out: Any, *, causal: bool = False) -> float:
    """The largest error of the output and the gradients; inf for NaN."""
    near = [x.detach().requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in near]
    out, truth = flash_attn_func(*near, causal=causal), attention(*exact, causal=causal)
    pairs = [(out, truth)]
    pairs += zip(torch.autograd.grad(out, near, d_out), torch.autograd.grad(truth, exact, d_out.double()), strict=True)
    return max(error(*pair) for pair in pairs)


def error(found: Any, truth: Any) -> float:
    """The largest difference; equal infinities differ by 0."""
    found, truth = found.detach().double(), truth.detach().double()
    return float((found - truth).masked_fill(found == truth, 0).abs().nan_to_num(nan=torch.inf).max())


def plain() -> Any:
    return normal(1, 64, 2, 32)


def transposed() -> Any:
    return normal(1, 2, 64, 32).transpose(1, 2)


def negative() -> float:
    q, k = normal(1, 20, 2, 32) * 0.1 + 1.9, normal(1, 45, 2, 32) * 0.1 - 1.9
    return error_of_gradients(q, k, normal(1, 45, 2, 32), normal(1, 20, 2, 32))


def cached(rows: int, lengths: list[int] | None, queries: int) -> float:
    """The error of a call with a cache, whose unused rows are NaN; a sequence without keys gives 0."""
    count = len(lengths or [rows])
    q, keys, values = normal(count, queries, 2, 32), normal(count, rows, 2, 32), normal(count, rows, 2, 32)
    truth = torch.zeros(q.shape, dtype=torch.float64)
    for number, length in enumerate(lengths or [rows]):
        keys[number, length:], values[number, length:] = NAN, NAN
        if length:
            parts = (x[number : number + 1, :length] for x in (keys, values))
            truth[number] = attention(q[number : number + 1], *parts)[0]
    given = lengths and torch.tensor(lengths, dtype=torch.int32)
    return error(flash_attn_with_kvcache(q, keys, values, cache_seqlens=given), truth)


def sums_of_a_cache() -> float:
    """The error of the log-sum-exp, whose shape is (batch, heads, queries)."""
    q, keys = normal(2, 3, 4, 32), normal(2, 64, 2, 32)
    sums = flash_attn_with_kvcache(q, keys, keys, return_softmax_lse=True)[1]
    return error(sums, scores_of(q, keys.repeat_interleave(2, 2)).logsumexp(-1))


def packed_sequences(*, causal: bool) -> float:
    """The largest error of output, log-sum-exp (heads, queries) and gradients; one sequence has no keys."""
    lengths = ((65, 0), (128, 128), (3, 40))
    queries, keys = (torch.tensor(counts).cumsum(0) for counts in zip((0, 0), *lengths, strict=True))
    q, d_out = normal(196, 2, 32).requires_grad_(), normal(196, 2, 32)
    k, v = normal(168, 2, 32).requires_grad_(), normal(168, 2, 32).requires_grad_()
    out, sums, _ = flash_attn_varlen_func(
        q, k, v, queries.int(), keys.int(), 128, 128, causal=causal, return_attn_probs=True
    )
    worst = 0.0
    found = torch.autograd.grad(out, (q, k, v), d_out)
    for number in range(3):
        rows, seen = (slice(int(ends[number]), int(ends[number + 1])) for ends in (queries, keys))
        one = [x.detach()[None, where].double().requires_grad_() for x, where in ((q, rows), (k, seen), (v, seen))]
        truth = attention(*one, causal=causal)
        exact = torch.autograd.grad(truth, one, d_out[None, rows].double())
        pairs = [(out[rows], truth[0]), (sums[:, rows], scores_of(*one[:2], causal=causal).logsumexp(-1)[0])]
        pairs += [(near[where], far[0]) for near, where, far in zip(found, (rows, seen, seen), exact, strict=True)]
        worst = max([worst, *(error(*pair) for pair in pairs if pair[1].numel())])
    return worst


def with_work_groups_in_reverse(compute: Callable[[], float]) -> float:
    interpreter.range = lambda *bounds: builtins.range(*bounds)[::-1]
    try:
        return compute()
    finally:
        del interpreter.range


def guarded_append() -> float:
    """What an append of 8 rows at row 60 of 64 changes after the end of a cache."""
    memory = torch.zeros(2, 2 * 64 * 32 * 2, dtype=torch.float16)
    keys, values = (row[: 64 * 2 * 32].view(1, 64, 2, 32) for row in memory)
    new = torch.ones(1, 8, 2, 32, dtype=torch.float16)
    lengths = torch.tensor([60], dtype=torch.int32)
    flash_attn_with_kvcache(new, keys, values, new, new, cache_seqlens=lengths, causal=True)
    return float(memory[:, 64 * 2 * 32 :].abs().max())


def blind_rows() -> list[bool]:
    """Whether the log-sum-exp is -inf for the rows without keys, and finite for the others."""
    sums = flash_attn_func(
        normal(1, 100, 2, 40), normal(1, 30, 2, 40), normal(1, 30, 2, 40), causal=True, return_attn_probs=True
    )[1]
    return [bool((sums[..., :70] == -torch.inf).all()), bool(sums[..., 70:].isfinite().all())]


def dropout() -> list[bool] | str:
    """Whether two calls have equal masks, and whether a seed repeats one; upstream's error in an older release."""
    masks = []
    for seed in (1, None, 1):
        if seed:
            torch.manual_seed(seed)
        ones = [torch.ones(1, 40, 1, 32, dtype=torch.float16)] * 3
        try:
            masks.append(torch.signbit(flash_attn_func(*ones, dropout_p=0.5, return_attn_probs=True)[2]))
        except ValueError as caught:
            return str(caught)
    return [torch.equal(masks[0], masks[1]), torch.equal(masks[0], masks[2])]


def refused(**options: Any) -> str:
    """The error of a call with options; empty if it computes."""
    cache = options.keys() & {"block_table", "cache_leftpad"}
    try:
        (flash_attn_with_kvcache if cache else flash_attn_func)(plain(), plain(), plain(), **options)
    except NotImplementedError as caught:
        return str(caught)
    return ""


def beyond_32_bits() -> str:
    far = torch.empty((1 << 31) + (1 << 20), dtype=torch.float16).as_strided((2, 64, 2, 32), (1 << 31, 64, 32, 1))
    try:
        flash_attn_func(far, far, far)
    except NotImplementedError as caught:
        return str(caught)
    return ""


TABLE = torch.zeros(1, 1, dtype=torch.int32)
CASES: dict[str, Callable[[], object]] = {
    "contiguous": lambda: error_of_gradients(plain(), plain(), plain(), plain()),
    "transposed": lambda: error_of_gradients(transposed(), transposed(), transposed(), plain()),
    "packed keys": lambda: error_of_gradients(plain(), normal(1, 64, 2, 3, 32)[:, :, :, 1], plain(), plain()),
    "keys and values of two layouts": lambda: error_of_gradients(plain(), transposed(), plain(), plain()),
    "expanded gradient": lambda: error_of_gradients(
        plain(), plain(), plain(), normal(1, 1, 1, 32).expand(1, 64, 2, 32)
    ),
    "very negative scores": negative,
    "cache of 255": lambda: cached(255, None, 1),
    "unused rows": lambda: cached(128, [1, 100], 3),
    "empty cache": lambda: max(cached(64, [0, 64], queries) for queries in (1, 3)),
    "log-sum-exp of a cache": sums_of_a_cache,
    "packed sequences": lambda: packed_sequences(causal=False),
    "packed sequences, causal": lambda: packed_sequences(causal=True),
    "gradients of rows without keys": lambda: error_of_gradients(
        normal(1, 100, 2, 32), normal(1, 30, 2, 32), normal(1, 30, 2, 32), normal(1, 100, 2, 32), causal=True
    ),
    "padded head dim": lambda: with_work_groups_in_reverse(
        lambda: error(
            flash_attn_func(*(x := (normal(1, 128, 2, 24), normal(1, 64, 2, 24), normal(1, 64, 2, 24))), causal=True),
            attention(*x, causal=True),
        )
    ),
    "append after the end": guarded_append,
    "rows without keys": blind_rows,
    "dropout": dropout,
    "window": lambda: refused(window_size=(8, 0), causal=True),
    "window that hides nothing": lambda: refused(window_size=(63, 0), causal=True),
    "softcap": lambda: refused(softcap=5.0),
    "pages": lambda: refused(block_table=TABLE),
    "left padding": lambda: refused(cache_leftpad=TABLE[0]),
    "beyond 32 bits": beyond_32_bits,
}

torch.manual_seed(0)
sys.stdout.write(json.dumps({name: case() for name, case in CASES.items()}))
