"""Linear memory: no operation makes a tensor as large as a matrix of scores, and torch's own formula is never used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flash_attention_amd import FlashAttention, flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from reference import Told, attention, off
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LENGTH = 2304
"""Tokens; a matrix of so many has more elements than a tile on any device."""


class Watch(TorchDispatchMode):
    """Notes every operation, and the most elements of memory behind any result."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: set[str] = set()
        self.most = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = function(*args, **(kwargs or {}))
        self.operations.add(function.__name__)
        for result in tree_leaves(results):
            if isinstance(result, Tensor):
                self.most = max(self.most, result.untyped_storage().nbytes() // result.element_size())
        return results


CALLS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window_size": (200, 50)},
    "softcap": {"softcap": 5.0, "causal": True},
    "alibi": {"alibi_slopes": torch.tensor([0.1])},
    "dropout": {"dropout_p": 0.1},
    "deterministic": {"causal": True, "deterministic": True},
    "log-sum-exp": {"causal": True, "return_softmax_lse": True},
}


def run(device: str, length: int, dtype: torch.dtype = torch.float16, **options: Any) -> Watch:
    """Watch both passes of one head."""
    tensors = [torch.randn(1, length, 1, 16, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    if "alibi_slopes" in options:
        options["alibi_slopes"] = options["alibi_slopes"].to(device)
    with Watch() as watch:
        result = flash_attn_func(*tensors, **options)
        out = result if isinstance(result, Tensor) else result[0]
        out.sum().backward()
    return watch


@pytest.mark.parametrize("call", CALLS)
def test_no_option_makes_a_matrix_of_scores(call: str, device: str) -> None:
    assert run(device, LENGTH, **CALLS[call]).most < LENGTH * LENGTH


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.usefixtures("small_tiles")
def test_twice_the_tokens_take_twice_the_memory_at_most(call: str, device: str) -> None:
    options = {**CALLS[call], "softmax_scale": 0.2}
    assert run(device, 192, **options).most <= 2 * run(device, 96, **options).most


def test_only_the_probabilities_are_a_matrix(device: str) -> None:
    assert run(device, 300, return_attn_probs=True).most == 300 * 300


@pytest.mark.usefixtures("small_tiles")
def test_masks_sequences_and_caches_are_linear_too(device: str) -> None:
    q, k, v = (torch.randn(1, 128, 2, 16, device=device, requires_grad=True) for _ in range(3))
    mask = torch.arange(128, device=device)[None] < 100
    starts = torch.tensor([0, 50, 128], device=device)
    calls: list[Callable[[], Tensor]] = [
        lambda: FlashAttention(causal=True)(q, k, v, mask),
        lambda: flash_attn_varlen_func(q[0], k[0], v[0], starts, starts, 78, 78, window_size=(50, 50)),
        lambda: flash_attn_with_kvcache(q, k, v, cache_seqlens=100, softcap=3.0),
    ]
    for call in calls:
        with Watch() as watch:
            out = call()
            if out.requires_grad:
                out.sum().backward()
        assert watch.most <= q.numel() < 128 * 128


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"return_softmax_lse": True}], ids=["full", "causal", "lse"])
def test_supported_calls_use_the_fused_kernel(options: dict[str, bool], dtype: torch.dtype, device: str) -> None:
    operations = run(device, 64, dtype, **options).operations
    forward = [name for name in operations if name.startswith("_scaled_dot_product") and "backward" not in name]
    backward = [name for name in operations if name.startswith("_scaled_dot_product") and "backward" in name]
    assert [len(forward), len(backward)] == [1, 1]
    assert not [name for name in operations if "softmax" in name or "matmul" in name or "mm." in name]


def test_fused_gradients_that_may_differ_in_their_bits_are_not_taken_for_deterministic_ones(device: str) -> None:
    assert not [name for name in run(device, 64, deterministic=True).operations if "scaled_dot_product" in name]
    q = torch.randn(1, 64, 1, 16, device=device)
    with Watch() as watch:
        flash_attn_func(q, q, q, deterministic=True)
    assert [name for name in watch.operations if "scaled_dot_product" in name]  # without gradients there is none


@pytest.mark.parametrize("causal", [False, True])
def test_unsupported_calls_use_blocks(causal: bool, device: str) -> None:
    q, k, v = (torch.randn(1, 300, 1, 16, device=device) for _ in range(3))
    with sdpa_kernel(SDPBackend.MATH), Watch() as watch:
        out = flash_attn_func(q, k, v, causal=causal)
    assert not [name for name in watch.operations if "softmax" in name or "scaled_dot_product" in name]
    assert off(out, attention(q.double(), k.double(), v.double(), Told(causal=causal))[0]) < 1e-5


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_heads_that_share_keys_go_to_a_kernel_too(groups: int, device: str) -> None:
    q = torch.randn(2, 128, 4, 64, device=device)
    k, v = (torch.randn(2, 128, groups, 64, device=device) for _ in range(2))
    with Watch() as watch:
        flash_attn_func(q, k, v, causal=True)
    assert [name for name in watch.operations if name.startswith("_scaled_dot_product")]


def test_a_key_mask_uses_a_kernel_without_a_full_matrix(device: str) -> None:
    q, k, v = (torch.randn(1, 512, 1, 16, device=device, requires_grad=True) for _ in range(3))
    mask = torch.arange(512, device=device)[None] < 300
    with Watch() as watch:
        FlashAttention()(q, k, v, mask).sum().backward()
    assert len([name for name in watch.operations if name.startswith("_scaled_dot_product")]) == 2
    assert watch.most < 512 * 512 / 8
    with Watch() as watch:
        FlashAttention(causal=True)(q, k, v, mask)  # kernels take one or the other
    assert not [name for name in watch.operations if "scaled_dot_product" in name]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("lse", [False, True])
def test_a_gpu_needs_the_output_and_little_else(lse: bool) -> None:
    """At 4096 tokens, batch 2, 8 heads of 64 in float16, causal; a formula with full matrices needs above 1000 MiB."""
    q, k, v = (torch.randn(2, 4096, 8, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    flash_attn_func(q, k, v, causal=True, return_softmax_lse=lse)  # what a first call leaves behind
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    flash_attn_func(q, k, v, causal=True, return_softmax_lse=lse)
    torch.cuda.synchronize()
    assert (torch.cuda.max_memory_allocated() - before) / 2**20 <= 10.4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(
    "options", [{"window_size": (512, 0)}, {"softcap": 20.0, "causal": True}], ids=["window", "softcap"]
)
def test_a_gpu_needs_no_more_for_twice_the_scores(options: dict[str, Any]) -> None:
    def extra(length: int) -> int:
        q, k, v = (
            torch.randn(1, length, 8, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3)
        )
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        flash_attn_func(q, k, v, **options).sum().backward()
        return torch.cuda.max_memory_allocated() - before

    for length in (256, 4096, 8192):
        extra(length)  # compilation, which later lengths can repeat, needs memory too
    assert extra(8192) < 2.1 * extra(4096)
