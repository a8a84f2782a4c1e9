"""Decoding with a cache: what it holds afterwards, and the attention to it; upstream's cases, smaller."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flash_attention_amd import flash_attn_with_kvcache
from reference import Told, agree, attention, off
from torch import Tensor

BATCH, ROWS, HEADS, GROUPS, WIDTH = 3, 48, 4, 2, 32

CASES: dict[str, dict[str, Any]] = {
    "one query": {"queries": 1},
    "one query, causal": {"queries": 1, "causal": True},
    "new keys": {"queries": 1, "new": 1},
    "more new keys": {"queries": 3, "new": 5, "causal": True},
    "fewer new keys": {"queries": 6, "new": 2, "causal": True},
    "window": {"queries": 4, "new": 4, "window_size": (7, 2)},
    "softcap": {"queries": 4, "new": 4, "softcap": 1.5, "causal": True},
    "alibi": {"queries": 4, "new": 4, "alibi": 2, "causal": True},
    "rotary": {"queries": 4, "new": 4, "rotary": 16, "causal": True},
    "rotary of all": {"queries": 4, "new": 4, "rotary": 32, "causal": True, "interleaved": False},
    "rotary of a window": {"queries": 4, "new": 3, "rotary": 16, "window_size": (9, 0), "interleaved": False},
    "rotary, not causal": {"queries": 4, "new": 3, "rotary": 16},
    "splits": {"queries": 4, "num_splits": 4},
}


def turned(x: Tensor, angles: Tensor, positions: list[int], interleaved: bool) -> Tensor:
    """Rotary embedding of (seqlen, heads, headdim) by complex numbers."""
    half = angles.shape[1]
    head, rest = x[..., : 2 * half], x[..., 2 * half :]
    pairs = head.unflatten(-1, (half, 2)) if interleaved else head.unflatten(-1, (2, half)).mT
    both = torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angles), angles)[positions][:, None]
    real = torch.view_as_real(both)
    return torch.cat([(real if interleaved else real.mT).flatten(-2), rest], -1)


class Step:
    """A call, and what it should do, on plain (sequence, row) lists in float64."""

    def __init__(self, case: dict[str, Any], dtype: torch.dtype, device: str) -> None:
        case = dict(case)
        self.queries, self.new = case.pop("queries"), case.pop("new", 0)
        self.rotary, self.interleaved = case.pop("rotary", 0), case.pop("interleaved", True)
        self.splits = case.pop("num_splits", 0)
        self.told = Told(**case)
        self.slopes = self.told.slopes(BATCH, HEADS, device)
        self.lengths = [17, 0 if self.new else 1, ROWS - 10]

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=torch.float64).to(device, dtype)

        self.q = normal(BATCH, self.queries, HEADS, WIDTH)
        self.k, self.v = normal(BATCH, ROWS, GROUPS, WIDTH), normal(BATCH, ROWS, GROUPS, WIDTH)
        self.fresh = [normal(BATCH, self.new, GROUPS, WIDTH) for _ in range(2)] if self.new else [None, None]
        self.angles = torch.rand(ROWS, self.rotary // 2, device=device, dtype=torch.float64) * 6

    def arguments(self) -> dict[str, Any]:
        given = {**self.told.arguments(self.slopes), "rotary_interleaved": self.interleaved, "num_splits": self.splits}
        del given["deterministic"]
        if self.rotary:
            given |= {
                "rotary_cos": self.angles.cos().to(self.q.dtype),
                "rotary_sin": self.angles.sin().to(self.q.dtype),
            }
        return given

    def expected(self, dtype: torch.dtype, left: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The output, the log-sum-exp and the caches afterwards, computed in a dtype."""
        q, k, v = (tensor.to(dtype) for tensor in (self.q, self.k.clone(), self.v.clone()))
        outs, sums = [], []
        for one, length in enumerate(self.lengths):
            query, end = q[one].double(), length + self.new
            if self.new:
                fresh = self.fresh[0][one].double()
                if self.rotary:
                    along = self.told.causal or self.told.window_size != (-1, -1)
                    query = turned(
                        query, self.angles, [length + i * along for i in range(self.queries)], self.interleaved
                    )
                    fresh = turned(fresh, self.angles, list(range(length, end)), self.interleaved)
                k[one, length:end] = fresh.to(dtype)
                v[one, length:end] = self.fresh[1][one].to(dtype)
            own = self.slopes if self.slopes is None else self.slopes[one : one + 1]
            part = slice(left[one], end)
            out, lse, _ = attention(
                query.to(dtype)[None], k[one : one + 1, part], v[one : one + 1, part], self.told, own
            )
            outs.append(out)
            sums.append(lse)
        return torch.cat(outs), torch.cat(sums), k, v

    def holds(self, out: Tensor, lse: Tensor, k: Tensor, v: Tensor, left: list[int]) -> None:
        """Whether a call did what it should."""
        near = self.expected(self.q.dtype, left)
        true = self.expected(torch.float64, left)
        exact = self.q.dtype == torch.float64 and not self.rotary  # angles are turned in float32
        if exact:
            assert off(out, true[0]) < 1e-12
        else:
            assert off(out, true[0]) <= 3 * off(near[0], true[0]) + 1e-4
        assert off(lse, true[1]) < (1e-12 if exact else 1e-2)
        assert off(k, true[2]) <= (0 if not self.rotary else 4e-3)
        assert torch.equal(v, near[3])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_a_step_writes_the_new_keys_and_attends_to_all(case: str, dtype: torch.dtype, device: str) -> None:
    step = Step(CASES[case], dtype, device)
    lengths = torch.tensor(step.lengths, dtype=torch.int32, device=device)
    k, v = step.k.clone(), step.v.clone()
    out, lse = flash_attn_with_kvcache(
        step.q, k, v, *step.fresh, cache_seqlens=lengths, return_softmax_lse=True, **step.arguments()
    )
    step.holds(out, lse, k, v, [0] * BATCH)


@pytest.mark.parametrize("case", ["one query", "more new keys", "alibi", "rotary"])
def test_sequences_of_the_batch_may_be_any_of_the_cache(case: str, device: str) -> None:
    step = Step(CASES[case], torch.float64, device)
    lengths = torch.tensor(step.lengths, dtype=torch.int32, device=device)
    index = torch.tensor([4, 0, 2], dtype=torch.int32, device=device)
    caches = [torch.randn(5, ROWS, GROUPS, WIDTH, device=device, dtype=torch.float64) for _ in range(2)]
    others = [cache[[1, 3]].clone() for cache in caches]
    for cache, rows in zip(caches, (step.k, step.v), strict=True):
        cache[index.long()] = rows
    out, lse = flash_attn_with_kvcache(
        step.q,
        *caches,
        *step.fresh,
        cache_seqlens=lengths,
        cache_batch_idx=index,
        return_softmax_lse=True,
        **step.arguments(),
    )
    step.holds(out, lse, *(cache[index.long()] for cache in caches), [0] * BATCH)
    assert all(torch.equal(cache[[1, 3]], other) for cache, other in zip(caches, others, strict=True))


@pytest.mark.parametrize("case", ["one query", "more new keys", "window", "alibi", "rotary", "rotary, not causal"])
def test_a_cache_of_blocks_is_one_cache(case: str, device: str) -> None:
    step = Step(CASES[case], torch.float64, device)
    lengths = torch.tensor(step.lengths, dtype=torch.int32, device=device)
    size, count = 16, ROWS // 16
    table = torch.randperm(BATCH * count + 2)[: BATCH * count].view(BATCH, count).to(device)
    caches = [torch.randn(BATCH * count + 2, size, GROUPS, WIDTH, device=device, dtype=torch.float64) for _ in range(2)]
    for cache, rows in zip(caches, (step.k, step.v), strict=True):
        cache[table.flatten()] = rows.unflatten(1, (count, size)).flatten(0, 1)
    out, lse = flash_attn_with_kvcache(
        step.q,
        *caches,
        *step.fresh,
        cache_seqlens=lengths,
        block_table=table.int(),
        return_softmax_lse=True,
        **step.arguments(),
    )
    step.holds(out, lse, *(cache[table].flatten(1, 2) for cache in caches), [0] * BATCH)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("case", ["one query", "more new keys", "window", "rotary"])
def test_padding_on_the_left_is_not_seen(case: str, paged: bool, device: str) -> None:
    step = Step(CASES[case], torch.float64, device)
    left = [5, 0, 30]
    given: dict[str, Any] = {"cache_leftpad": torch.tensor(left, dtype=torch.int32, device=device)}
    caches = [step.k.clone(), step.v.clone()]
    for cache in caches:
        for one, first in enumerate(left):
            cache[one, :first] = torch.nan
    for name, cache in zip("kv", caches, strict=True):
        setattr(step, name, cache.clone())
    if paged:
        caches = [cache.unflatten(1, (3, 16)).flatten(0, 1) for cache in caches]
        given["block_table"] = torch.arange(9, device=device).view(3, 3)
    out, lse = flash_attn_with_kvcache(
        step.q,
        *caches,
        *step.fresh,
        cache_seqlens=torch.tensor(step.lengths, dtype=torch.int32, device=device),
        return_softmax_lse=True,
        **given,
        **step.arguments(),
    )
    found = [cache.reshape(BATCH, ROWS, GROUPS, WIDTH).nan_to_num() for cache in caches]
    true = step.expected(torch.float64, left)
    assert off(out, true[0]) < (1e-5 if step.rotary else 1e-12)
    assert off(lse, true[1]) < (1e-5 if step.rotary else 1e-12)
    assert off(found[0], true[2].nan_to_num()) < 1e-5
    assert off(found[1], true[3].nan_to_num()) == 0


@pytest.mark.parametrize("given", [20, None])
def test_one_length_may_be_given_for_all(given: int | None, device: str) -> None:
    step = Step(CASES["one query"], torch.float64, device)
    step.lengths = [ROWS if given is None else given] * BATCH
    out, lse = flash_attn_with_kvcache(step.q, step.k, step.v, cache_seqlens=given, return_softmax_lse=True)
    step.holds(out, lse, step.k, step.v, [0] * BATCH)
    alone = flash_attn_with_kvcache(step.q, step.k, step.v, cache_seqlens=given)
    assert isinstance(alone, Tensor)
    assert off(alone, out) < 1e-12


def test_there_is_no_backward_pass(device: str) -> None:
    step = Step(CASES["new keys"], torch.float32, device)
    tensors = [tensor.requires_grad_() for tensor in (step.q, *step.fresh)]
    out = flash_attn_with_kvcache(tensors[0], step.k, step.v, *tensors[1:], cache_seqlens=3)
    assert not any(tensor.requires_grad for tensor in (out, step.k, step.v))


def test_steps_add_up_to_one_causal_attention(device: str) -> None:
    q, k, v = (torch.randn(2, 12, 2, 16, device=device) for _ in range(3))
    caches = [torch.full((2, 16, 2, 16), torch.nan, device=device) for _ in range(2)]
    outs = []
    for at in (0, 5, 6):
        until = {0: 5, 5: 6, 6: 12}[at]
        part = slice(at, until)
        outs.append(flash_attn_with_kvcache(q[:, part], *caches, k[:, part], v[:, part], cache_seqlens=at, causal=True))
    assert off(torch.cat(outs, 1), attention(q.double(), k.double(), v.double(), Told(causal=True))[0]) < 1e-5
    assert all(cache[:, 12:].isnan().all() for cache in caches)


def test_upstreams_rule_holds_for_a_long_cache(device: str) -> None:
    q = torch.randn(2, 16, 6, 59, device=device, dtype=torch.float16)
    k, v = (torch.randn(2, 800, 3, 59, device=device, dtype=torch.float16) for _ in range(2))
    out = flash_attn_with_kvcache(q, k, v, causal=True)
    true, *_ = attention(q.double(), k.double(), v.double(), Told(causal=True))
    near, *_ = attention(q, k, v, Told(causal=True))
    agree([out], [near], [true])
