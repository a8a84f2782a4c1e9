"""torch's FlashAttention-2 kernel by its own operator: windows, packed sequences, deterministic gradients."""

from __future__ import annotations

from itertools import accumulate
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
from flash_attention_amd import flash, flash_attn_func, flash_attn_varlen_func
from reference import Told, attention, off
from test_memory import Watch

GPU = pytest.mark.skipif(not torch.cuda.is_available() or torch.version.hip is not None, reason="no NVIDIA GPU")

STATES = [(False, False), (True, False), (True, True)]
"""torch's deterministic mode: whether it is on, and whether it only warns."""


@pytest.fixture
def restored() -> Any:
    yield
    torch.use_deterministic_algorithms(False)


def state() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


@pytest.mark.parametrize("before", STATES, ids=["off", "on", "warns"])
@pytest.mark.usefixtures("restored")
def test_the_deterministic_mode_is_restored(before: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    with flash.deterministic(wanted=False):
        assert state() == before
    with flash.deterministic(wanted=True):
        assert state() == (True, False)
    assert state() == before
    with pytest.raises(ValueError, match="inside"), flash.deterministic(wanted=True):
        raise ValueError("inside")
    assert state() == before


@pytest.mark.usefixtures("restored")
def test_two_threads_leave_the_deterministic_mode_as_it_was() -> None:
    start, seen = Barrier(2), []

    def work() -> None:
        start.wait()
        for _ in range(2000):
            with flash.deterministic(wanted=True):
                seen.append(state())

    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {(True, False)}
    assert state() == (False, False)


@GPU
@pytest.mark.parametrize("window", [(20, 0), (20, 10), (-1, 10), (20, -1)])
def test_windows_go_to_the_kernel_unless_there_are_more_queries_than_keys(window: tuple[int, int]) -> None:
    def operations(queries: int, keys: int) -> list[str]:
        q, k = (torch.randn(1, length, 2, 64, device="cuda", dtype=torch.float16) for length in (queries, keys))
        with Watch() as watch:
            out = flash_attn_func(q, k, k, window_size=window)
        truth, *_ = attention(q.double(), k.double(), k.double(), Told(window_size=window))
        assert off(out, truth.nan_to_num()) < 2e-3
        return [name for name in watch.operations if name.startswith("_flash_attention")]

    assert len(operations(100, 150)) == 1
    assert not operations(150, 100)


@GPU
@pytest.mark.parametrize("told", [Told(causal=True), Told(window_size=(99, 0))], ids=["causal", "window"])
@pytest.mark.usefixtures("restored")
def test_deterministic_gradients_are_the_kernels(told: Told) -> None:
    x = [torch.randn(2, 900, 4, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3)]

    def gradients() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(
            flash_attn_func(*x, causal=told.causal, window_size=told.window_size, deterministic=True).sum(), x
        )

    with Watch() as watch:
        first = gradients()
    assert "_flash_attention_backward.default" in watch.operations
    assert all(torch.equal(*pair) for _ in range(3) for pair in zip(first, gradients(), strict=True))
    assert state() == (False, False)


@GPU
@pytest.mark.skipif(not flash.PACKED, reason="this torch does not offer attention of packed sequences")
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (30, 0)}, {"deterministic": True}], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_packed_sequences_are_one_call(options: dict[str, Any], dropout: float) -> None:
    starts = torch.tensor([0, *accumulate([40, 7, 300, 120])], device="cuda", dtype=torch.int32)
    x = [torch.randn(467, heads, 64, device="cuda", dtype=torch.float16, requires_grad=True) for heads in (4, 2, 2)]
    with Watch() as watch:
        out = flash_attn_varlen_func(*x, starts, starts, 300, 300, dropout, **options)
        torch.autograd.grad(out.sum(), x)
    kernels = [name for name in watch.operations if "attention" in name]
    assert sorted(kernels) == ["_flash_attention_backward.default", "_flash_attention_forward.default"]
    assert watch.most <= 4 * 467 * 64
