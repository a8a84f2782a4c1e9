"""Compares the attention of the installed flash-attn with one written out in float64; prints JSON.

    python -I -B check_numbers.py cpu|cuda [PATTERN ...]

The public functions are called, on a GPU as a user calls them, on the CPU with TRITON_INTERPRET=1 in the environment.
Each error stands beside the one of the same formula with every result on the way rounded to the dtype of the inputs,
forward and backward: what a correct implementation may be off by. A case whose name matches a pattern is left without
its backward pass; one that matches what follows a "!" is left out.
"""

from __future__ import annotations

import json
import math
import random
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import torch

ADDRESS_SPACE = 8 << 30
"""Bytes on a machine without a GPU; a GPU's own memory is part of the address space."""

RESULTS = ("output", "dq", "dk", "dv")

Tensor: TypeAlias = Any
Rounding: TypeAlias = Callable[[Tensor], Tensor]
Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A call with its inputs; the tensors hold one sequence after the other, as rows."""

    name: str
    queries: tuple[int, ...]
    """The length of each sequence."""
    keys: tuple[int, ...]
    heads: int = 2
    groups: int = 2
    """Heads of keys and values."""
    dim: int = 64
    causal: bool = False
    scale: float | None = None
    """None is one over the root of `dim`."""
    packed: bool = False
    cache: int = 0
    """Rows that hold the keys of a sequence, if these are in a cache, which has no backward pass."""


CASES = (
    Case("full", (80, 80), (80, 80)),
    Case("causal", (160, 160), (160, 160), causal=True, scale=0.2),  # more than one block of every kernel
    Case("wide", (128,), (128,), dim=128),
    Case("uneven causal", (70, 70), (100, 100), dim=40, causal=True),
    Case("grouped causal", (80, 80), (80, 80), heads=4, causal=True),
    Case("packed", (33, 70, 17), (33, 70, 17), packed=True),
    Case("packed causal", (33, 70, 17), (50, 70, 90), packed=True, causal=True),
    Case("cached", (1, 1), (100, 170), cache=256),
    Case("cached causal", (3, 3), (100, 170), heads=4, causal=True, cache=256),
)


def attention(queries: Tensor, keys: Tensor, values: Tensor, case: Case, rounded: Rounding) -> Tensor:
    """softmax(Q K^T scale) V of one sequence of a case; its last query sees all keys."""
    queries, keys, values = (rows.transpose(0, 1) for rows in (queries, keys, values))
    keys, values = (rows.repeat_interleave(case.heads // case.groups, 0) for rows in (keys, values))
    scores = rounded(queries @ keys.mT * (case.scale or case.dim**-0.5))
    if case.causal:
        length, seen = scores.shape[-2:]
        hidden = torch.ones(length, seen, dtype=torch.bool, device=scores.device).triu(seen - length + 1)
        scores = scores.masked_fill(hidden, -math.inf)
    return rounded(rounded(scores.softmax(-1)) @ values).transpose(0, 1)


def by_sequence(case: Case, rounded: Rounding) -> Attention:
    """The attention of all sequences of a case."""

    def function(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rows = [case.cache or length for length in case.keys]
        parts = zip(queries.split(case.queries), keys.split(rows), values.split(rows), case.keys, strict=True)
        return torch.cat([attention(q, k[:length], v[:length], case, rounded) for q, k, v, length in parts])

    return function


def rounding_to(dtype: Any) -> Rounding:
    """Rounds a float64 result to a dtype, and the gradient that comes back to it too."""

    def rounded(result: Tensor) -> Tensor:
        near = result + (result.to(dtype).to(result.dtype) - result).detach()
        if near.requires_grad:
            near.register_hook(lambda gradient: gradient.to(dtype).to(gradient.dtype))
        return near

    return rounded


def public_function(case: Case, device: str) -> Attention:
    """The attention of a case by the function of flash_attn for its layout."""
    from flash_attn import (  # type: ignore[import-not-found]
        flash_attn_func,
        flash_attn_varlen_func,
        flash_attn_with_kvcache,
    )

    count = len(case.queries)
    options = {"causal": case.causal, "softmax_scale": case.scale}

    def starts(lengths: Sequence[int]) -> Tensor:
        return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)

    def function(*rows: Tensor) -> Tensor:
        if case.packed:
            sizes = (starts(case.queries), starts(case.keys), max(case.queries), max(case.keys))
            return flash_attn_varlen_func(*rows, *sizes, **options)
        tensors = [tensor.unflatten(0, (count, -1)) for tensor in rows]
        if not case.cache:
            return flash_attn_func(*tensors, **options).flatten(0, 1)
        lengths = torch.tensor(case.keys, dtype=torch.int32, device=device)
        return flash_attn_with_kvcache(*tensors, cache_seqlens=lengths, **options).flatten(0, 1)

    return function


def inputs(case: Case, dtype: Any, device: str) -> Iterator[Tensor]:
    """Queries, keys, values and the gradient of the output: normal, and the same with every torch and processor."""
    numbers = random.Random(case.name)  # noqa: S311
    stored = sum(case.cache or length for length in case.keys)
    heads = (case.heads, case.groups, case.groups, case.heads)
    for length, count in zip((sum(case.queries), stored, stored, sum(case.queries)), heads, strict=True):
        shape = (length, count, case.dim)
        yield torch.tensor([numbers.gauss(0, 1) for _ in range(math.prod(shape))]).view(shape).to(device, dtype)


def results(function: Attention, tensors: Sequence[Tensor], *, backward: bool) -> list[Tensor]:
    """The output of a function and, if asked for, its gradients for queries, keys and values."""
    arguments = [tensor.detach().requires_grad_(backward) for tensor in tensors[:3]]
    output = function(*arguments)
    if backward:
        output.backward(tensors[3].to(output.dtype))
    return [output.detach(), *(argument.grad for argument in arguments if backward)]


def check(case: Case, dtype: Any, device: str, *, backward: bool) -> dict[str, tuple[float, float]]:
    """Of each result of a case the greatest error, and the greatest that rounding makes."""
    tensors = list(inputs(case, dtype, device))
    exact = [tensor.double() for tensor in tensors]
    found = results(public_function(case, device), tensors, backward=backward)
    true = results(by_sequence(case, lambda result: result), exact, backward=backward)
    near = results(by_sequence(case, rounding_to(dtype)), exact, backward=backward)

    def greatest_error(numbers: Tensor, truth: Tensor) -> float:
        return float((numbers.double() - truth).abs().max())

    rows = zip(RESULTS, found, near, true, strict=False)  # without a backward pass there is the output alone
    return {name: (greatest_error(one, truth), greatest_error(other, truth)) for name, one, other, truth in rows}


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is like one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_all(device: str, patterns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every case in every dtype, whatever becomes of the others."""
    left_out = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    # numpy has no bfloat16, and what the interpreter makes of it is no number of that kind
    for dtype in (torch.float16,) if device == "cpu" else (torch.float16, torch.bfloat16):
        for case in CASES:
            name = f"{case.name} {str(dtype).removeprefix('torch.')}"
            if matches(name, left_out):
                continue
            sys.stderr.write(f"{name}\n")  # the last word if a kernel ends the process
            backward = not case.cache and not matches(name, patterns)
            try:
                yield {"name": name, "errors": check(case, dtype, device, backward=backward), "error": None}
            except Exception as caught:
                said = str(caught).strip().splitlines() or [""]
                yield {"name": name, "errors": {}, "error": f"{type(caught).__name__}: {said[-1]}"}


def use_interpreter() -> None:
    """Make flash_attn's functions take CPU tensors, and have the interpreters of Triton 3.1 and 3.2 run its kernels."""
    import triton.runtime.interpreter as interpreter  # type: ignore[import-not-found]

    # torch's dispatcher would refuse tensors that are not on a GPU: flash_attn registers its operators for that alone
    custom_op = torch.library.custom_op
    torch.library.custom_op = lambda *names, **options: custom_op(*names, **{**options, "device_types": None})
    if hasattr(interpreter, "RESERVED_KWS"):  # launch options that are no arguments of a kernel; later ones find out
        interpreter.RESERVED_KWS += ["waves_per_eu", "num_buffers_warp_spec", "num_consumer_groups"]
        interpreter.RESERVED_KWS += ["reg_dec_producer", "reg_inc_consumer"]
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def find_gpu() -> str | None:
    """The arch of the AMD GPU that torch computes on, or None."""
    if torch.version.hip is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_properties(0).gcnArchName).partition(":")[0]


def main(device: str, patterns: Sequence[str]) -> None:
    """Check everything, or nothing if a GPU is asked for and torch has none."""
    if device == "cpu":
        use_interpreter()
    gpu = find_gpu()
    from flash_attn.flash_attn_interface import flash_attn_gpu  # type: ignore[import-not-found]

    triton = sys.modules.get("triton")
    report = {
        "torch": torch.__version__,
        "triton": triton and triton.__version__,
        "gpu": gpu,
        "backend": flash_attn_gpu.__name__,
        "installed": Path(flash_attn_gpu.__file__).is_relative_to(sys.prefix),
        "cases": list(check_all(device, patterns)) if gpu or device == "cpu" else [],
    }
    sys.stdout.write(f"\n{json.dumps(report)}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
