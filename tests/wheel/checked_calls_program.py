"""Call an installed Triton wheel in Triton's interpreter, and print what each fault's smallest case gives, as JSON.

With ``-O``, as upstream asserts that some tensors are on a GPU. Its argument is the folder of `stand_in_gpu`.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import torch
import triton.runtime.interpreter as interpreter  # type: ignore[import-not-found]

if find_spec("aiter"):
    sys.path.append(sys.argv[1])
    from stand_in_gpu import stand_in_gpu  # type: ignore[import-not-found]

    stand_in_gpu("gfx942")
torch.cuda.device = lambda *_device: nullcontext()
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


def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """The reference for (batch, seqlen, heads, headdim) tensors, 0 in rows without keys."""
    scores = scores_of(q, k, **options)
    shares = (scores - scores.logsumexp(-1, keepdim=True)).nan_to_num(nan=-torch.inf).exp()
    return (shares @ heads_of(v, q)).transpose(1, 2)


def scores_of(
    q: Any,
    k: Any,
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
) -> Any:
    scores = heads_of(q, q) @ heads_of(k, q).mT * q.shape[-1] ** -0.5
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    distance = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1] - torch.arange(k.shape[1])
    if alibi_slopes is not None:
        scores = scores - alibi_slopes[:, :, None, None] * distance.abs()
    left, right = window_size[0], 0 if causal else window_size[1]
    hidden = (distance > (left if left >= 0 else 1 << 30)) | (-distance > (right if right >= 0 else 1 << 30))
    return scores.masked_fill(hidden, -torch.inf)


def heads_of(x: Any, q: Any) -> Any:
    """(batch, heads, seqlen, headdim) in float64, with as many heads as the queries."""
    return x.double().transpose(1, 2).repeat_interleave(q.shape[2] // x.shape[2], 1)


def error_of_gradients(q: Any, k: Any, v: Any, d_out: Any, **options: Any) -> float:
    """The largest error of the output and the gradients; inf for NaN."""
    near = [x.detach().requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in near]
    out, truth = flash_attn_func(*near, **options), attention(*exact, **options)
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
    """The error of a call with a cache, whose unused rows are NaN; a sequence without keys gives 0.

    The scores are so negative that a further key of zeros would have all the weight.
    """
    count = len(lengths or [rows])
    q, keys = normal(count, queries, 2, 32) * 0.1 + 1.9, normal(count, rows, 2, 32) * 0.1 - 1.9
    values = normal(count, rows, 2, 32)
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
    return error(sums, scores_of(q, keys).logsumexp(-1))


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


def dropout() -> list[bool]:
    """Whether two calls have equal masks, and whether a seed repeats one; then the same for packed sequences."""
    found, starts = [], torch.tensor([0, 40], dtype=torch.int32)
    one = torch.ones(1, 40, 1, 32, dtype=torch.float16)
    for compute, given in (
        (flash_attn_func, [one] * 3),
        (flash_attn_varlen_func, [*[one[0]] * 3, starts, starts, 40, 40]),
    ):
        masks = []
        for seed in (1, None, 1):
            if seed:
                torch.manual_seed(seed)
            masks.append(torch.signbit(compute(*given, dropout_p=0.5, return_attn_probs=True)[2]))
        found += [torch.equal(masks[0], masks[1]), torch.equal(masks[0], masks[2])]
    return found


# -- options: the error of the numbers with one, or the error that refuses it


def forward(heads: int = 2, **options: Any) -> float:
    q, k, v = normal(1, 40, 2, 32), normal(1, 70, heads, 32), normal(1, 70, heads, 32)
    return error(flash_attn_func(q, k, v, **options), attention(q, k, v, **options))


def gradients(heads: int = 2, **options: Any) -> float:
    more = normal(1, 70, heads, 32), normal(1, 70, heads, 32), normal(1, 40, 2, 32)
    return error_of_gradients(normal(1, 40, 2, 32), *more, **options)


def dropped(*, backward: bool) -> float:
    """The error against the mask that the call returns, in the signs of its probabilities."""
    near = [plain().requires_grad_() for _ in range(3)]
    out, _, probabilities = flash_attn_func(*near, dropout_p=0.3, return_attn_probs=True)
    exact = [x.detach().double().requires_grad_() for x in near]
    shares = scores_of(*exact[:2]).softmax(-1).masked_fill(torch.signbit(probabilities), 0) / 0.7
    truth, d_out = (shares @ heads_of(exact[2], exact[0])).transpose(1, 2), plain()
    if not backward:
        return error(out, truth)
    pairs = zip(torch.autograd.grad(out, near, d_out), torch.autograd.grad(truth, exact, d_out.double()), strict=True)
    return max(error(*pair) for pair in pairs)


def from_pages() -> float:
    q, pages = normal(2, 1, 2, 32), normal(4, 256, 2, 32)
    table = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32)
    lengths = torch.tensor([300, 256], dtype=torch.int32)
    out = flash_attn_with_kvcache(q, pages, pages, cache_seqlens=lengths, block_table=table)
    rows = [pages[row].reshape(1, 512, 2, 32)[:, :length] for row, length in zip(table.long(), lengths, strict=True)]
    return max(error(out[n : n + 1], attention(q[n : n + 1], rows[n], rows[n])) for n in (0, 1))


def from_packed_pages() -> float:
    q, pages, table = normal(40, 2, 32), normal(4, 256, 2, 32), torch.tensor([[2, 0]], dtype=torch.int32)
    queries, keys = torch.tensor([0, 40], dtype=torch.int32), torch.tensor([0, 300], dtype=torch.int32)
    out = flash_attn_varlen_func(q, pages, pages, queries, keys, 40, 300, block_table=table)
    rows = pages[[2, 0]].reshape(1, 512, 2, 32)[:, :300]
    return error(out[None], attention(q[None], rows, rows))


def padded_cache() -> float:
    q, keys = normal(1, 1, 2, 32), normal(1, 64, 2, 32)
    out = flash_attn_with_kvcache(q, keys, keys, cache_leftpad=torch.tensor([5], dtype=torch.int32))
    return error(out, attention(q, keys[:, 5:], keys[:, 5:]))


def appended(*, rotary: bool) -> float:
    """The error of a call that appends a row to each sequence of a cache in another order, and of its lengths."""
    q, keys, new = normal(2, 1, 2, 32), normal(3, 64, 2, 32), normal(2, 1, 2, 32)
    lengths, order = torch.tensor([20, 41], dtype=torch.int32), torch.tensor([2, 0], dtype=torch.int32)
    turns = (torch.outer(torch.arange(64), 0.1 ** torch.arange(16)).cos().half(),) * 2 if rotary else (None, None)
    given, out = lengths.clone(), torch.zeros(q.shape, dtype=torch.float64)
    for row, (length, place) in enumerate(zip(lengths.tolist(), order.tolist(), strict=True)):
        one = turned(q[row : row + 1], turns, length), turned(new[row : row + 1], turns, length)
        seen = torch.cat([keys[place : place + 1, :length], one[1].half()], 1)
        values = torch.cat([keys[place : place + 1, :length], new[row : row + 1]], 1)
        out[row] = attention(one[0].half(), seen, values)[0]
    found = flash_attn_with_kvcache(
        q, keys, keys.clone(), new, new, *turns, given, order, causal=True, rotary_interleaved=False
    )
    return max(error(found, out), error(given, lengths))


def appended_to_pages() -> float:
    q, pages, lengths = normal(1, 2, 2, 32), normal(3, 128, 2, 32), torch.tensor([127], dtype=torch.int32)
    new, given, order = normal(1, 2, 2, 32), lengths.clone(), torch.tensor([[2, 0]], dtype=torch.int32)
    seen = torch.cat([pages[2:, :127], new], 1)
    found = flash_attn_with_kvcache(q, pages, pages, new, new, cache_seqlens=given, block_table=order, causal=True)
    return max(error(found, attention(q, seen, seen, causal=True)), error(given, lengths))


def turned(x: Any, turns: tuple[Any, Any], place: int) -> Any:
    """Apply a rotary embedding to one row; the cosines are also the sines, so that either is not left out."""
    if turns[0] is None:
        return x
    (one, two), turn = x.double().chunk(2, -1), turns[0][place].double()
    return torch.cat([one * turn - two * turn, one * turn + two * turn], -1)


def beyond_32_bits() -> float:
    far = torch.zeros((1 << 31) + (1 << 20), dtype=torch.float16).as_strided((2, 64, 2, 32), (1 << 31, 64, 32, 1))
    return error(flash_attn_func(far, far, far), torch.zeros(1))


SLOPES = torch.tensor([[0.3, 0.1]])
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
    "window that hides nothing": lambda: gradients(window_size=(69, 0), causal=True),
    "causal": lambda: gradients(causal=True),
    "float32": lambda: error(
        flash_attn_func(*(x := [plain().float() for _ in range(3)])),
        attention(*x),
    ),
    "grouped heads": lambda: forward(1),
    "grouped heads, gradients": lambda: gradients(1),
    "dropout_p": lambda: dropped(backward=False),
    "dropout_p, gradients": lambda: dropped(backward=True),
    "alibi_slopes": lambda: forward(alibi_slopes=SLOPES, causal=True),
    "alibi_slopes, gradients": lambda: gradients(alibi_slopes=SLOPES, causal=True),
    "window_size": lambda: forward(window_size=(8, 3)),
    "window_size, gradients": lambda: gradients(window_size=(8, 3)),
    "softcap": lambda: forward(softcap=5.0),
    "block_table": from_pages,
    "block_table, packed sequences": from_packed_pages,
    "block_table, new keys": appended_to_pages,
    "cache_leftpad": padded_cache,
    "cache_batch_idx": lambda: appended(rotary=False),
    "rotary_cos": lambda: appended(rotary=True),
    "more than 2**31 elements": beyond_32_bits,
}


def result_of(case: Callable[[], object]) -> object:
    """What the case gives, or the error that refuses its call."""
    try:
        return case()
    except (NotImplementedError, ValueError) as caught:
        return str(caught)


torch.manual_seed(0)
sys.stdout.write(json.dumps({name: result_of(case) for name, case in CASES.items()}))
