"""The options of a call: packed lengths, visible pairs, and how each library is given them.

torch is a module of names, because no test calls it. test_bench_presets.py calls the functions with a real torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from wheelfactory.gpu.bench.measure import PROGRAMS
from wheelfactory.gpu.bench.programs.call_options import SHORTEST, CallOptions, draw_lengths, visible_pairs
from wheelfactory.verify import proofs

PACKED = CallOptions(causal=True, starts="starts", lengths=(3, 5))
HALF = SimpleNamespace(device=SimpleNamespace(type="cuda"), dtype="float16", shape=(8, 4, 32))


def test_packed_lengths_are_the_same_each_time_and_the_longest_is_one_of_them() -> None:
    found = draw_lengths(4096, 64)
    assert found == draw_lengths(4096, 64)
    assert len(found) == 64
    assert max(found) == 4096
    assert 4096 // SHORTEST <= min(found) < 1024
    assert len(set(found)) > 32
    assert min(draw_lengths(5, 100)) == 1


@pytest.mark.parametrize(
    ("causal", "window"), [*product((True, False), ((2, 0), (2, 3), (2, -1), (-1, 2), (100, 100)))]
)
def test_the_pairs_in_a_window_are_counted_one_by_one(causal: bool, window: tuple[int, int]) -> None:
    options = CallOptions(causal=causal, window=window)
    before, after = (30 if size < 0 else size for size in window)
    counted = sum(
        -before <= key - query <= (0 if causal else after)
        for length in (1, 7, 30)
        for query, key in product(range(length), repeat=2)
    )
    assert visible_pairs(options, (1, 7, 30)) == counted


def test_without_a_window_all_pairs_count_and_half_if_causal() -> None:
    assert visible_pairs(CallOptions(causal=False), (3, 4)) == 25
    assert visible_pairs(CallOptions(causal=True), (3, 4)) == 12.5


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a module of the programs; the imports are removed afterwards."""
    torch = ModuleType("torch")
    vars(torch).update(__version__="2.9.1", float16="float16", bfloat16="bfloat16")
    monkeypatch.setattr(sys, "modules", {**sys.modules, "torch": torch})
    monkeypatch.syspath_prepend(PROGRAMS)
    monkeypatch.syspath_prepend(proofs.PROGRAMS)
    return import_module


@pytest.fixture
def attend(programs: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The fallback's function, where an installed module with these functions is the fallback."""

    def load(**functions: Any) -> Any:
        module = ModuleType("flash_attention_amd")
        vars(module).update(functions)
        implementations = programs("implementations")
        monkeypatch.setattr(implementations, "find_spec", lambda name: name)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return implementations.load_implementation("fallback", "cpu", "").function

    return load


def dense(q: str, k: str, v: str, causal: bool = False, window_size: Any = None, deterministic: bool = False) -> Any:
    return (q, k, v), {"causal": causal, "window_size": window_size, "deterministic": deterministic}


def packed(*tensors: Any, causal: bool = False) -> Any:
    return tensors, causal


def test_flash_attn_is_given_only_the_options_that_are_set_and_packed_sequences_by_another_function(
    attend: Callable[..., Any],
) -> None:
    function = attend(flash_attn_func=lambda q, k, v, causal: (q, k, v, causal))
    assert function("q", "k", "v", CallOptions(causal=True)) == ("q", "k", "v", True)

    function = attend(flash_attn_func=dense)
    _, arguments = function("q", "k", "v", CallOptions(causal=False, window=(2, 3), deterministic=True))
    assert arguments == {"causal": False, "window_size": (2, 3), "deterministic": True}

    function = attend(flash_attn_func=dense, flash_attn_varlen_func=packed)
    assert function("q", "k", "v", PACKED) == (("q", "k", "v", "starts", "starts", 5, 5), True)


def test_an_older_flash_attn_without_the_option_is_not_run(
    programs: Callable[[str], Any], attend: Callable[..., Any]
) -> None:
    function, refused = attend(flash_attn_func=dense), programs("call_options").NotRunError
    cases: list[tuple[CallOptions, str]] = [
        (CallOptions(causal=True, softcap=30.0), "this version has no softcap"),
        (CallOptions(causal=True, slopes="slopes"), "this version has no alibi_slopes"),
        (PACKED, "this version has no flash_attn_varlen_func"),
    ]
    for options, why in cases:
        with pytest.raises(refused, match=why):
            function("q", "k", "v", options)


@pytest.mark.parametrize("name", ["fwd", "varlen_fwd"])
def test_the_backends_function_is_seen_for_a_batch_and_for_packed_sequences(
    programs: Callable[[str], Any], name: str
) -> None:
    def fwd() -> None: ...

    def varlen_fwd() -> None: ...

    implementations = programs("implementations")
    backend = SimpleNamespace(fwd=fwd, varlen_fwd=varlen_fwd)
    loaded = implementations.LoadedImplementation(dense, None, "installed", backend)
    symbol = implementations.find_backend_symbol(loaded, lambda: getattr(backend, name)())
    assert symbol == f"{__name__}.{name}"
    assert (backend.fwd, backend.varlen_fwd) == (fwd, varlen_fwd)


def of_torch_2_10(q: Any, k: Any, v: Any, *sizes: Any, is_causal: bool = False) -> Any:
    return sizes, is_causal


def of_torch_2_11(q: Any, k: Any, v: Any, *sizes: Any, window_size: tuple[int, int] = (-1, -1)) -> Any:
    return sizes, window_size


def of_torch_2_14(
    q: Any, k: Any, v: Any, *sizes: Any, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False
) -> Any:
    return sizes, (window_size, enable_gqa)


@pytest.mark.parametrize(
    ("function", "causal", "passed"),
    [
        (of_torch_2_10, True, True),
        (of_torch_2_10, False, False),
        (of_torch_2_11, True, (-1, 0)),
        (of_torch_2_11, False, (-1, -1)),
        (of_torch_2_14, True, ((-1, 0), True)),
    ],
)
def test_each_torchs_varlen_attention_is_told_of_the_mask_and_of_fewer_key_heads(
    programs: Callable[[str], Any], function: Callable[..., Any], causal: bool, passed: Any
) -> None:
    varlen = ModuleType("torch.nn.attention.varlen")
    varlen.varlen_attn = function  # type: ignore[attr-defined]
    sys.modules[varlen.__name__] = varlen
    fewer = SimpleNamespace(**{**vars(HALF), "shape": (8, 2, 32)})
    options = CallOptions(causal=causal, starts="starts", lengths=(3, 5))
    attend = programs("implementations").load_implementation("varlen", "cuda", "").function
    assert attend(HALF, fewer, fewer, options) == (("starts", "starts", 5, 5), passed)


def test_varlen_is_not_run_without_what_torchs_function_needs_nor_deterministic_sdpa(
    programs: Callable[[str], Any],
) -> None:
    implementations, refused = programs("implementations"), programs("call_options").NotRunError
    with pytest.raises(refused, match=r"torch 2\.9\.1 has no torch\.nn\.attention\.varlen"):
        implementations.load_implementation("varlen", "cuda", "")
    varlen = programs("torch_attention").varlen
    on_cpu = SimpleNamespace(**{**vars(HALF), "device": SimpleNamespace(type="cpu")})
    wide = SimpleNamespace(**{**vars(HALF), "dtype": "float32"})
    cases: list[tuple[Any, CallOptions, str]] = [
        (HALF, CallOptions(causal=True), "packed sequences only: add --preset varlen"),
        (on_cpu, PACKED, "needs a GPU and float16 or bfloat16"),
        (wide, PACKED, "needs a GPU and float16 or bfloat16"),
    ]
    for tensor, options, why in cases:
        with pytest.raises(refused, match=why):
            varlen(tensor, tensor, tensor, options)
    with pytest.raises(refused, match="needs float16 or bfloat16"):
        programs("torch_attention").sdpa(wide, wide, wide, CallOptions(causal=True, deterministic=True))
