"""FlexAttention: when it is used, its masks, and on a CPU its forward pass."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flash_attention_amd import attend, flash, flash_attn_func, flex
from flash_attention_amd.visible import band
from reference import ATOL, Told, attention, off, seen
from test_dense import compare, inputs
from test_memory import Watch
from torch import Tensor

pytestmark = pytest.mark.skipif(not hasattr(flex.flex, "AuxRequest"), reason="this torch is too old")
COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
SOFTCAP = Told(softcap=2.0, causal=True)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """FlexAttention is used on a CPU too, and nothing has failed."""
    monkeypatch.setattr(flex, "DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(flex, "_failed", set())
    flex.available.cache_clear()
    yield
    flex.available.cache_clear()


def tensors(queries: int, keys: int, width: int = 32, device: str = "cpu") -> list[Tensor]:
    return [torch.randn(2, *size, width, device=device) for size in ((queries, 4), (keys, 2), (keys, 2))]


@COMPILER
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code
@pytest.mark.parametrize(
    ("told", "lengths"),
    [
        (SOFTCAP, [(20, 20), (200, 200), (100, 100), (20, 20)]),
        (Told(alibi=2, causal=True, window_size=(30, 0), softcap=3.0), [(20, 90), (300, 140), (100, 700)]),
    ],
    ids=["square", "all"],
)
@pytest.mark.usefixtures("chosen")
def test_it_computes_attention_of_any_lengths(
    told: Told,
    lengths: list[tuple[int, int]],
    device: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flex, "OWN", 1)
    caplog.set_level(logging.DEBUG, "flash_attention_amd")
    slopes = told.slopes(2, 4, device)
    slopes = None if slopes is None else slopes.double()  # of another dtype than the scores
    for queries, keys in lengths:
        q, k, v = tensors(queries, keys, device=device)
        out = flash_attn_func(q, k, v, **told.arguments(slopes))
        truth, *_ = attention(q.double(), k.double(), v.double(), told, slopes)
        assert off(out, truth) < ATOL[torch.float32]
        assert out.is_contiguous()
    own = [record.message for record in caplog.records if record.name == "flash_attention_amd"]
    assert len(own) == 3  # for the first lengths, for the next, and for any
    assert {message[:23] for message in own} == {"compiled FlexAttention "}


@COMPILER
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code
@pytest.mark.usefixtures("chosen")
def test_slopes_in_bfloat16_are_multiplied_in_float32(device: str) -> None:
    told = Told(alibi=1)
    slopes = (told.slopes(2, 4, device) / 100).bfloat16()  # times distances that bfloat16 cannot express
    q, k, v = tensors(600, 600, device=device)
    out = flash_attn_func(q, k, v, alibi_slopes=slopes)
    truth, *_ = attention(q.double(), k.double(), v.double(), told, slopes.double())
    assert off(out, truth) < ATOL[torch.float32]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU, and FlexAttention has no gradients on a CPU")
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code
@pytest.mark.parametrize("told", [SOFTCAP, Told(alibi=1, causal=True)], ids=["softcap", "alibi"])
@pytest.mark.usefixtures("chosen")
def test_kernels_for_any_shape_of_whole_blocks_have_right_gradients(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flex, "OWN", 0)
    flex._function.cache_clear()
    for length in (128, 256, 640):
        compare(inputs((2, length, length, 4, 2, 64), torch.float16, "cuda"), told, told.slopes(2, 4, "cuda"))


@pytest.mark.parametrize("lengths", [(128, 128), (300, 300), (100, 700), (700, 300), (1, 260), (257, 1)])
@pytest.mark.parametrize("window", [(-1, 0), (0, 0), (130, 0), (-1, 200), (200, -1), (60, 200), (300, 5)])
def test_masks_are_right_in_every_block(window: tuple[int, int], lengths: tuple[int, int]) -> None:
    mine = band(*lengths, window, causal=False)
    if mine.full:
        return
    mask, shift = flex.block_mask(mine, torch.device("cpu"))
    truth = seen(*lengths, False, window)
    rows, columns = (torch.arange(length) for length in lengths)
    assert torch.equal(mask.mask_mod(0, 0, rows[:, None], columns), truth)
    assert int(shift) == lengths[1] - lengths[0]
    size = [-(-length // flex.BLOCK) * flex.BLOCK for length in lengths]
    padded = torch.zeros(size, dtype=torch.bool)
    padded[: lengths[0], : lengths[1]] = truth
    tiles = padded.unflatten(1, (-1, flex.BLOCK)).unflatten(0, (-1, flex.BLOCK)).transpose(1, 2).flatten(2)
    full = listed(mask.full_kv_num_blocks, mask.full_kv_indices)
    part = listed(mask.kv_num_blocks, mask.kv_indices)
    assert torch.equal(full, tiles.all(-1))
    assert torch.equal(part, tiles.any(-1) & ~tiles.all(-1))


def listed(counts: Tensor, indices: Tensor) -> Tensor:
    """The matrix of blocks that counts and indices list."""
    matrix = torch.zeros(indices.shape[2:], dtype=torch.bool)
    for row, count in enumerate(counts[0, 0].tolist()):
        matrix[row, indices[0, 0, row, :count].long()] = True
    return matrix


def test_masks_made_in_inference_mode_can_be_used_in_training() -> None:
    flex.block_mask.cache_clear()
    with torch.inference_mode():
        mask, _ = flex.block_mask(band(300, 290, (-1, -1), causal=True), torch.device("cpu"))
    assert not mask.kv_indices.is_inference()


class FakeCompiler:
    """Stands in for torch's compiler and FlexAttention, whose result are the queries."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.options: list[dict[str, bool]] = []
        """The kernel options of each call."""
        self.called: list[bool | None] = []
        """For each call, `dynamic` of the function."""
        self.slopes: list[Tensor | None] = []
        """The ALiBi slopes of each call."""
        self.refused: list[bool | None] = []
        """`dynamic` of the functions that torch does not compile again."""

    def compile(self, function: Callable[..., Any], *, dynamic: bool | None, **_: Any) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with self.monkeypatch.context() as compiling:
                compiling.setattr(torch.compiler, "is_compiling", lambda: dynamic not in self.refused)
                result = function(*arguments)
            self.called.append(dynamic)
            self.slopes.append(arguments[4])
            return result

        return call

    def attention(self, q: Tensor, *_: Any, kernel_options: dict[str, bool], **__: Any) -> tuple[Tensor, Any]:
        self.options.append(kernel_options)
        return q, SimpleNamespace(lse=None)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCompiler]:
    fake = FakeCompiler(monkeypatch)
    monkeypatch.setattr(flex, "available", lambda _: True)
    monkeypatch.setattr(flex.flex, "flex_attention", fake.attention)
    monkeypatch.setattr(torch, "compile", fake.compile)
    flex._function.cache_clear()
    yield fake
    flex._function.cache_clear()


@pytest.mark.parametrize(("queries", "forced"), [(1, {}), (2, {"FORCE_USE_FLEX_ATTENTION": True})])
def test_only_one_query_may_go_to_torchs_decoding_kernel(
    queries: int, forced: dict[str, bool], compiler: FakeCompiler
) -> None:
    flash_attn_func(*tensors(queries, 30), softcap=2.0)
    assert compiler.options == [forced]


@pytest.mark.parametrize(
    ("queries", "keys", "whole"), [(128, 256, True), (128, 128, True), (129, 256, False), (128, 200, False)]
)
def test_kernels_of_whole_blocks_do_not_look_for_an_end(
    queries: int, keys: int, whole: bool, compiler: FakeCompiler
) -> None:
    flash_attn_func(*tensors(queries, keys), softcap=2.0)
    assert [options.get("IS_DIVISIBLE", False) for options in compiler.options] == [whole]


def test_only_the_first_shapes_have_functions_of_their_own(compiler: FakeCompiler) -> None:
    for length in (20, 30, 40, 50, 60, 70, 80, 30):
        flash_attn_func(*tensors(length, length), softcap=2.0)
    assert compiler.called == [False] * flex.OWN + [None] * 3 + [False]


def test_one_query_needs_no_new_function_for_each_number_of_keys(compiler: FakeCompiler) -> None:
    for keys in (20, 21, 22):
        flash_attn_func(*tensors(1, keys), softcap=2.0)
    assert compiler.called == [None] * 3


def test_slopes_get_no_gradient(compiler: FakeCompiler) -> None:
    flash_attn_func(*tensors(20, 20), alibi_slopes=torch.ones(4, requires_grad=True))
    (slopes,) = compiler.slopes
    assert slopes is not None
    assert not slopes.requires_grad


def test_a_function_that_torch_does_not_compile_again_is_replaced_by_that_for_any_shape(compiler: FakeCompiler) -> None:
    compiler.refused = [False]
    flash_attn_func(*tensors(20, 20), softcap=2.0)
    assert compiler.called == [None]


@COMPILER
@pytest.mark.usefixtures("chosen")
def test_without_compilation_blocks_compute_and_not_torchs_full_matrix() -> None:
    q, k, v = tensors(150, 150)
    truth, *_ = attention(q.double(), k.double(), v.double(), SOFTCAP)
    with Watch() as watch:  # torch does not compile below such a mode
        out = flash_attn_func(q, k, v, **SOFTCAP.arguments(None))
    assert not [name for name in watch.operations if "flex" in name or "softmax" in name]
    assert off(out, truth) < 2e-6
    out = torch.compiler.disable(flash_attn_func)(q, k, v, **SOFTCAP.arguments(None))
    assert off(out, truth) < 2e-6


@pytest.mark.usefixtures("chosen")
def test_a_failure_gives_one_warning_and_blocks_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def function(kind: flex.Kind) -> Any:
        def fail(*_: Any) -> None:
            calls.append(kind)
            raise RuntimeError("no kernel\nand a long story")

        return fail

    monkeypatch.setattr(flex, "_function", function)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    q, k, v = tensors(20, 20)
    expected, *_ = attention(q, k, v, SOFTCAP)
    with pytest.warns(RuntimeWarning, match="FLEX=0 turns it off: RuntimeError: no kernel$") as told:
        for options in (SOFTCAP, SOFTCAP, Told(softcap=2.0), SOFTCAP):
            out = flash_attn_func(q, k, v, **options.arguments(None))
    assert off(out, expected) < 1e-5
    assert len(told) == 1
    assert len(calls) == 2  # each kind once


@pytest.mark.parametrize("change", [{"dropout_p": 0.1}, {"softmax_scale": 0.0}, {"return_attn_probs": True}], ids=str)
@pytest.mark.usefixtures("chosen")
def test_what_it_does_not_support_is_not_tried(change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "_run", lambda *_: pytest.fail("FlexAttention was called"))
    flash_attn_func(*tensors(20, 20), softcap=2.0, **change)
    for width in (8, 264):
        flash_attn_func(*tensors(20, 20, width=width), softcap=2.0)
    flash_attn_func(*(tensor.double() for tensor in tensors(20, 20)), softcap=2.0)
    flash_attn_func(*(tensor.requires_grad_() for tensor in tensors(20, 20)), softcap=2.0, deterministic=True)


@pytest.mark.usefixtures("chosen")
def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert flex.available("cpu")
    flex.available.cache_clear()
    monkeypatch.setenv(flex.VARIABLE, "0")
    assert not flex.available("cpu")


@pytest.mark.usefixtures("chosen")
def test_it_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert not flex.available("cpu")


@pytest.mark.parametrize(
    ("queries", "gradients", "first"), [(256, False, "flex"), (255, False, "flash"), (256, True, "flash")]
)
def test_it_is_asked_first_for_long_windows_without_gradients(
    queries: int, gradients: bool, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for module, name in ((flex, "flex"), (flash, "flash")):
        monkeypatch.setattr(module, "attend", lambda *_, name=name, **__: asked.append(name))
    monkeypatch.setattr(attend, "LONG", 2 * 4 * 256)
    q, k, v = (tensor.requires_grad_(gradients) for tensor in tensors(queries, queries))
    flash_attn_func(q, k, v, window_size=(5, 0))
    assert asked[0] == first
    assert set(asked) == {"flex", "flash"}


def test_a_cpu_uses_blocks() -> None:
    assert not flex.available("cpu")
