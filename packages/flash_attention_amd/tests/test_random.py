"""Random calls on a CPU against float64: shapes, dtypes, layouts and options that nobody chose, the same each time."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
import torch
from flash_attention_amd import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from reference import Told, attention, off
from test_layouts import GRADIENTS, LAYOUTS, Layout
from test_varlen import reference, starts
from torch import Tensor

LIMITS = {torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float32: 1e-5, torch.float64: 1e-12}
"""The allowed error for results up to 1, relative to the largest one above."""

ROUNDS = range(15)


class Draw:
    """Random arguments of a call."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)  # noqa: S311  # nothing secret
        torch.manual_seed(self.random.randrange(2**32))
        self.dtype = self.random.choice(list(LIMITS))
        self.groups = self.random.randint(1, 3)
        self.heads = self.groups * self.random.choice([1, 1, 2, 4])
        self.width = self.random.choice([1, 7, 8, 16, 33, 64])

    def told(self) -> Told:
        """Options; about every third call has none but `causal`."""
        some = self.random.random() < 0.65
        return Told(
            causal=self.random.random() < 0.5,
            softmax_scale=self.random.choice([None, None, 0.3, -0.2, 0.0]) if some else None,
            window_size=self.random.choice([(-1, -1), (-1, -1), (0, 0), (9, 3), (-1, 5)]) if some else (-1, -1),
            softcap=self.random.choice([0.0, 0.0, 2.0]) if some else 0.0,
            deterministic=self.random.random() < 0.2,
            alibi=self.random.choice([0, 0, 1, 2]) if some else 0,
        )

    def tensor(self, *shape: int, layouts: dict[str, Layout] = LAYOUTS) -> Tensor:
        """Random numbers in a random layout."""
        layout = self.random.choice(list(layouts.values()))
        return layout(torch.randn(shape, dtype=torch.float64).to(self.dtype))

    def qkv(self, batch: tuple[int, ...], queries: int, keys: int) -> list[Tensor]:
        """Queries, keys and values with gradients."""
        shapes = [(queries, self.heads), (keys, self.groups), (keys, self.groups)]
        return [self.tensor(*batch, *shape, self.width).requires_grad_() for shape in shapes]

    def agrees(self, found: list[Tensor], true: list[Tensor]) -> None:
        """Hold results against those in float64."""
        for number, (one, truth) in enumerate(zip(found, true, strict=True)):
            sizes = truth.detach()[truth.isfinite()].abs()
            limit = LIMITS[self.dtype] * (max(1.0, float(sizes.max())) if len(sizes) else 1.0)
            assert off(one, truth) <= limit, f"result {number} of {self.dtype}"


def exact(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


def check_blind(out: Tensor, lse: Tensor, sums: Tensor) -> None:
    """Rows without keys give 0, and a log-sum-exp of -inf. `out` is (..., queries, heads, headdim)."""
    blind = sums == -math.inf
    assert torch.equal(lse == -math.inf, blind)
    assert out[blind.transpose(-1, -2)].count_nonzero() == 0


@pytest.mark.parametrize("number", ROUNDS)
def test_batches(number: int) -> None:
    draw = Draw(f"batches {number}")
    told, batch = draw.told(), draw.random.randint(1, 3)
    queries, keys = (draw.random.choice([1, 5, 17, 40, 70]) for _ in range(2))
    tensors, slopes = draw.qkv((batch,), queries, keys), told.slopes(batch, draw.heads, "cpu")
    out, lse = flash_attn_func(*tensors, **told.arguments(slopes), return_softmax_lse=True)
    alone = flash_attn_func(*tensors, **told.arguments(slopes))  # by another function of torch
    gradient = draw.tensor(*out.shape, layouts=GRADIENTS)
    same = exact(tensors)
    true, sums, _ = attention(*same, told, slopes)
    expected = torch.autograd.grad(true, same, gradient.double())
    draw.agrees([out, *torch.autograd.grad(out, tensors, gradient), lse], [true, *expected, sums])
    draw.agrees([alone, *torch.autograd.grad(alone, tensors, gradient)], [true, *expected])
    check_blind(out, lse, sums)


@pytest.mark.parametrize("number", ROUNDS)
def test_packed_sequences(number: int) -> None:
    draw = Draw(f"packed sequences {number}")
    told, batch, after = draw.told(), draw.random.randint(1, 5), draw.random.choice([0, 3])
    lengths = tuple([draw.random.choice([0, 0, 1, 6, 6, 30]) for _ in range(batch)] for _ in range(2))
    tensors = draw.qkv((), *(sum(some) + after for some in lengths))
    slopes = told.slopes(batch, draw.heads, "cpu")
    out, lse = flash_attn_varlen_func(
        *tensors,
        *(starts(some, "cpu") for some in lengths),
        *(max(some) for some in lengths),
        **told.arguments(slopes),
        return_softmax_lse=True,
    )
    gradient = draw.tensor(*out.shape)
    same = exact(tensors)
    true, sums = reference(*same, lengths, told, slopes)
    expected = torch.autograd.grad(true, same, gradient.double())
    draw.agrees([out, *torch.autograd.grad(out, tensors, gradient), lse], [true, *expected, sums])
    check_blind(out, lse, sums)


@pytest.mark.parametrize("number", ROUNDS)
def test_caches(number: int) -> None:
    draw = Draw(f"caches {number}")
    told, batch, rows = draw.told(), draw.random.randint(1, 4), 512
    queries, new = draw.random.choice([1, 1, 4]), draw.random.choice([0, 1])
    lengths = [draw.random.choice([0, 255, 511]) for _ in range(batch)]
    q = draw.tensor(batch, queries, draw.heads, draw.width)
    caches = [draw.tensor(batch, rows, draw.groups, draw.width) for _ in range(2)]
    fresh = [draw.tensor(batch, new, draw.groups, draw.width) for _ in range(2)]
    for cache in caches:
        for one, length in enumerate(lengths):
            cache[one, length:] = torch.nan
    slopes = told.slopes(batch, draw.heads, "cpu")
    arguments = {name: value for name, value in told.arguments(slopes).items() if name != "deterministic"}
    out, lse = flash_attn_with_kvcache(
        q,
        *caches,
        *(fresh if new else ()),
        cache_seqlens=torch.tensor(lengths),
        return_softmax_lse=True,
        **arguments,
    )
    for one, length in enumerate(lengths):
        sequence = slice(one, one + 1)
        k, v = (
            torch.cat([cache[sequence, :length], rows[sequence]], 1).double()
            for cache, rows in zip(caches, fresh, strict=True)
        )
        own = slopes[sequence] if slopes is not None and slopes.dim() == 2 else slopes
        true, sums, _ = attention(q[sequence].double(), k, v, told, own)
        draw.agrees([out[sequence], lse[sequence]], [true, sums])
        check_blind(out[sequence], lse[sequence], sums)
        for cache, rows in zip(caches, fresh, strict=True):
            assert torch.equal(cache[one, length : length + new], rows[one])
            assert cache[one, length + new :].isnan().all()


@pytest.mark.parametrize("number", ROUNDS)
def test_dropout(number: int) -> None:
    draw = Draw(f"dropout {number}")
    told, batch, chance = draw.told(), draw.random.randint(1, 2), draw.random.choice([0.1, 0.5])
    queries, keys = (draw.random.choice([40, 70]) for _ in range(2))
    tensors, slopes = draw.qkv((batch,), queries, keys), told.slopes(batch, draw.heads, "cpu")

    def drop(**more: Any) -> Any:
        return flash_attn_func(*tensors, chance, **told.arguments(slopes), **more)

    torch.manual_seed(number)
    out, lse, chances = drop(return_attn_probs=True)
    assert not torch.equal(drop(), out)
    torch.manual_seed(number)
    assert torch.equal(drop(), out)
    gradient = draw.tensor(*out.shape, layouts=GRADIENTS)
    same = exact(tensors)
    true, sums, _ = attention(*same, told, slopes, kept=~chances.signbit(), dropout_p=chance)
    expected = torch.autograd.grad(true, same, gradient.double())
    draw.agrees([out, *torch.autograd.grad(out, tensors, gradient), lse], [true, *expected, sums])
    check_blind(out, lse, sums)
