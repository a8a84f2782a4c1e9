"""Calls in graphs: compiled without a break, exported, and with tensors that have no numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from flash_attention_amd import (
    FlashAttention,
    flash_attn_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)
from reference import off
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code

Call: TypeAlias = Callable[..., Any]


@pytest.fixture(autouse=True)
def new_compiler() -> None:
    """Torch compiles a function at most 8 times."""
    torch._dynamo.reset()


def dense(**options: Any) -> Call:
    return lambda q, k, v, _: flash_attn_func(q, k, v, **options)


def packed(**options: Any) -> Call:
    def call(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Any:
        return flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), starts, starts, 12, 12, **options)

    return call


def masked(q: Tensor, k: Tensor, v: Tensor, _: Tensor) -> Tensor:
    mask = torch.arange(12, device=q.device) < torch.tensor([[12], [7]], device=q.device)
    return FlashAttention(softcap=2.0)(q, k, v, mask)  # type: ignore[no-any-return]  # torch has no type for a call


CALLS = {
    "plain": dense(),
    "causal": dense(causal=True),
    "window and softcap": dense(window_size=(3, 2), softcap=2.0),
    "log-sum-exp": dense(causal=True, return_softmax_lse=True),
    "probabilities": dense(return_attn_probs=True),
    "mask": masked,
    "qkvpacked": lambda q, _k, _v, _: flash_attn_qkvpacked_func(torch.stack([q, q, q], 2), window_size=(2, 2)),
    "packed": packed(causal=True),
    "packed, everything": packed(softcap=1.0, return_attn_probs=True),
}


def tensors(device: str) -> tuple[list[Tensor], Tensor]:
    """Queries, keys and values, and starts of packed sequences."""
    some = [torch.randn(2, 12, 2, 16, device=device, requires_grad=True) for _ in range(3)]
    return some, torch.tensor([0, 5, 17, 24], dtype=torch.int32, device=device)


def listed(found: Any) -> list[Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", CALLS)
def test_a_graph_computes_what_the_call_does(name: str, device: str) -> None:
    some, starts = tensors(device)
    expected = listed(CALLS[name](*some, starts))
    found = listed(torch.compile(CALLS[name], fullgraph=True, backend="aot_eager")(*some, starts))
    assert [(x.shape, x.dtype, x.stride()) for x in found] == [(x.shape, x.dtype, x.stride()) for x in expected]
    gradient = torch.randn_like(expected[0])
    results = [
        (*outs, *torch.autograd.grad(outs[0], some, gradient, allow_unused=True, materialize_grads=True))
        for outs in (found, expected)
    ]
    assert max(off(*pair) for pair in zip(*results, strict=True)) < 1e-5


@pytest.mark.parametrize("name", CALLS)
def test_tensors_without_numbers_get_the_shapes_of_the_results(name: str) -> None:
    some, starts = tensors("cpu")
    expected = listed(CALLS[name](*some, starts))
    found = listed(CALLS[name](*(x.to("meta") for x in (*some, starts))))
    assert [(x.shape, x.dtype, x.device.type) for x in found] == [(x.shape, x.dtype, "meta") for x in expected]


def test_dropout_drops_the_same_in_both_passes(device: str) -> None:
    (q, k, v), _ = tensors(device)
    out = torch.compile(dense(dropout_p=0.5), fullgraph=True, backend="aot_eager")(q, k, v, None)
    # the output is linear in the values, so its product with a gradient is theirs with the values' gradient
    gradient = torch.randn_like(out)
    (d_v,) = torch.autograd.grad(out, v, gradient)
    assert off((d_v * v).sum(), (gradient * out).sum()) < 1e-5


@pytest.mark.parametrize("length", [9, torch.tensor([3, 9], dtype=torch.int32)], ids=["int", "tensor"])
def test_a_cache_is_written_and_read_in_a_graph(length: Any, device: str) -> None:
    length = length.to(device) if isinstance(length, Tensor) else length
    (q, k, v), _ = tensors(device)
    q, k, v = (x.detach()[:, :2] for x in (q, k, v))
    expected, found = ([torch.ones(2, 12, 2, 16, device=device) for _ in range(2)] for _ in range(2))

    def step(k_cache: Tensor, v_cache: Tensor) -> Any:
        return flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, cache_seqlens=length, causal=True, return_softmax_lse=True
        )

    outs = torch.compile(step, fullgraph=True, backend="aot_eager")(*found), step(*expected)
    assert max(off(*pair) for pair in zip((*outs[0], *found), (*outs[1], *expected), strict=True)) < 1e-6


@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=["full", "causal"])
@pytest.mark.parametrize("groups", [1, 2])
def test_torch_sees_its_own_function_in_a_graph_that_it_compiles(
    options: dict[str, bool], groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the backward pass does not compute attention again. On a GPU, the gradient's layout is that of the output."""
    monkeypatch.setattr(torch.version, "hip", "7.2")
    q, k, v = (torch.randn(2, 12, heads, 16, requires_grad=True) for heads in (2, groups, groups))
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, _: list[Any]) -> Call:
        seen.extend(node.target for node in graph.graph.nodes)
        return graph.forward

    out = torch.compile(dense(**options), fullgraph=True, backend=backend)(q, k, v, None)
    expected = dense(**options)(q, k, v, None)
    assert torch.nn.functional.scaled_dot_product_attention in seen
    gradients = (torch.autograd.grad(x, (q, k, v), torch.ones_like(x)) for x in (out, expected))
    assert max(off(*pair) for pair in zip((out, *next(gradients)), (expected, *next(gradients)), strict=True)) < 1e-6


class Model(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> list[Tensor]:
        return [CALLS[name](q, k, v, starts) for name in ("window and softcap", "packed", "plain")]


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_can_be_exported(strict: bool) -> None:
    some, starts = tensors("cpu")
    given = *(x.detach() for x in some), starts
    program = torch.export.export(Model(), given, strict=strict)
    found = program.module()(*given)
    assert [torch.equal(*pair) for pair in zip(found, Model()(*given), strict=True)] == [True] * 3
    assert {node.target for node in program.graph.nodes} >= {
        torch.ops.flash_attention_amd.attention.default,
        torch.ops.flash_attention_amd.attention_packed.default,
    }


def test_lengths_of_a_graph_can_change() -> None:
    compiled = torch.compile(CALLS["window and softcap"], fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (9, 12, 17):
        q, k, v = (torch.randn(1, length, 2, 16) for _ in range(3))
        assert torch.equal(compiled(q, k, v, None), CALLS["window and softcap"](q, k, v, None))
