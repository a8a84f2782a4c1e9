"""Operators with fake implementations: attention as one node in a graph of `torch.compile` or `torch.export`.

Which kernel computes a call depends on tensors that only exist when the graph runs, and packed sequences are read from
the device. So a traced call becomes an operator, which computes as a call that is not traced. The backward pass of an
operator computes attention again: a graph cannot hold what the kernels save.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

from flash_attention_amd.options import Attended, Options

Computed: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""What an operator returns: the output, the log-sum-exp, the probabilities; empty tensors for what is not requested."""

OPTIONS = (
    "Tensor? slopes, Tensor? seed, float scale, float dropout_p, bool causal, int left, int right, float softcap, "
    "bool deterministic, bool lse, bool probabilities"
)
"""The last arguments of an operator that has a backward pass; `flat` makes them."""

LIBRARY = torch.library.Library("flash_attention_amd", "DEF")


def traced(q: Tensor) -> bool:
    """Whether a call is only recorded, or has shapes without numbers."""
    return torch.compiler.is_compiling() or q.is_meta or isinstance(q, FakeTensor)


def flat(options: Options, *, lse: bool, probabilities: bool) -> tuple[Any, ...]:
    """The arguments `OPTIONS`. The seed of dropout is drawn here, so that both passes drop the same probabilities."""
    scale, dropout, causal, (left, right), softcap, slopes, deterministic = options
    seed = torch.randint(1 << 62, ()) if dropout else None
    return slopes, seed, scale, dropout, causal, left, right, softcap, deterministic, lse, probabilities


def unflat(slopes: Tensor | None, _seed: Tensor | None, *given: Any) -> tuple[Options, dict[str, bool]]:
    """The options from the arguments `OPTIONS`, and which results are requested."""
    scale, dropout, causal, left, right, softcap, deterministic, lse, probabilities = given
    options = Options(scale, dropout, causal, (left, right), softcap, slopes, deterministic)
    return options, {"lse": lse or probabilities, "probabilities": probabilities}


def packed(found: Attended) -> Computed:
    """The results as an operator returns them."""
    nothing = [found.out.new_empty(0) for _ in range(2)]
    return found.out, *(none if part is None else part for none, part in zip(nothing, found[1:], strict=True))


def attended(computed: Computed, *, lse: bool, probabilities: bool) -> Attended:
    """The results of an operator."""
    out, sums, shown = computed
    return Attended(out, sums if lse or probabilities else None, shown if probabilities else None)


def define(schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """Define an operator, and return it. `fake` returns empty tensors as `compute` would return them."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"flash_attention_amd::{name}", fake, lib=LIBRARY)
    operator: Callable[..., Any] = getattr(torch.ops.flash_attention_amd, name).default
    return operator


def define_attention(
    name: str, arguments: str, compute: Callable[..., Computed], fake: Callable[..., Computed]
) -> Callable[..., Computed]:
    """Define an operator of (q, k, v, arguments, OPTIONS), whose first result has a gradient."""
    inputs = ", ".join(["Tensor q, Tensor k, Tensor v", *filter(None, [arguments]), OPTIONS])
    options = OPTIONS.count(",") + 1

    def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Computed:
        seed = rest[1 - options]
        if seed is None:
            return compute(q, k, v, *rest)
        # kernels drop different elements, and the choice of one depends on whether gradients are needed
        with _seeded(seed, q.device), torch.enable_grad():
            found = compute(*(tensor.detach().requires_grad_() for tensor in (q, k, v)), *rest)
        return tuple(tensor.detach() for tensor in found)  # type: ignore[return-value]  # three of three

    def backward(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        with _seeded(rest[1 - options], q.device), torch.enable_grad():
            out, *_ = compute(*leaves, *rest)
            return tuple(tensor.contiguous() for tensor in torch.autograd.grad(out, leaves, d_out))

    def fake_backward(_: Tensor, *given: Any) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in given[:3])

    again = define(f"{name}_backward(Tensor d_out, {inputs}) -> (Tensor, Tensor, Tensor)", backward, fake_backward)
    operator = define(f"{name}({inputs}) -> (Tensor, Tensor, Tensor)", forward, fake)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Computed) -> None:
        is_tensor = [isinstance(value, Tensor) for value in inputs]
        ctx.save_for_backward(*(value if kept else None for value, kept in zip(inputs, is_tensor, strict=True)))
        ctx.plain = [None if kept else value for value, kept in zip(inputs, is_tensor, strict=True)]
        ctx.mark_non_differentiable(*output[1:])

    def differentiate(ctx: Any, d_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        pairs = zip(ctx.saved_tensors, ctx.plain, strict=True)
        given = [plain if saved is None else saved for saved, plain in pairs]
        return *again(d_out, *given), *[None] * (len(given) - 3)

    torch.library.register_autograd(f"flash_attention_amd::{name}", differentiate, setup_context=setup, lib=LIBRARY)
    return operator


@contextmanager
def _seeded(seed: Tensor | None, device: torch.device) -> Iterator[None]:
    """Seed the generators of the CPU and of a device, and restore their states at the end."""
    if seed is None:
        yield
        return
    generators = [torch.default_generator]
    if device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index])
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(int(seed))
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
