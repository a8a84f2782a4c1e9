"""flash_attn_func and its packed forms against the reference: shapes, dtypes, options, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import flash_attention_amd
import pytest
import torch
from flash_attention_amd import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from reference import ATOL, Told, agree, attention, off
from torch import Tensor

SHAPES = {  # batch, queries, keys, heads, heads of the keys, headdim
    "square": (2, 70, 70, 4, 2, 40),
    "more keys": (1, 50, 90, 4, 4, 64),
    "more queries": (2, 90, 50, 2, 1, 59),
    "one query": (3, 1, 33, 4, 2, 64),
    "one key": (1, 33, 1, 2, 2, 32),
    "wide": (1, 33, 40, 2, 2, 256),
    "wider than flash-attn's": (1, 20, 20, 2, 2, 264),
    "odd": (1, 129, 128, 3, 3, 17),
}

OPTIONS = {
    "nothing": Told(),
    "causal": Told(causal=True),
    "scale": Told(softmax_scale=0.3),
    "window": Told(window_size=(7, 5)),
    "window of one": Told(window_size=(0, 0)),
    "left window": Told(window_size=(9, -1)),
    "right window": Told(window_size=(-1, 3)),
    "causal window": Told(window_size=(9, 30), causal=True),
    "window as long as the keys": Told(window_size=(500, 500), causal=True),
    "softcap": Told(softcap=1.5),
    "alibi": Told(alibi=1),
    "causal alibi of sequences": Told(alibi=2, causal=True),
    "deterministic": Told(deterministic=True, causal=True),
    "all": Told(causal=True, softmax_scale=0.4, window_size=(30, 0), softcap=3.0, alibi=2),
}


def inputs(shape: Sequence[int], dtype: torch.dtype, device: str) -> list[Tensor]:
    """Queries, keys, values and a gradient of the output."""
    batch, queries, keys, heads, groups, width = shape
    sizes = [(queries, heads), (keys, groups), (keys, groups), (queries, heads)]
    made = [torch.randn(batch, *size, width, dtype=torch.float64) for size in sizes]
    return [tensor.to(dtype).to(device) for tensor in made]


def with_gradients(
    function: Callable[..., tuple[Tensor, ...]], tensors: Sequence[Tensor], dtype: torch.dtype | None = None
) -> tuple[list[Tensor], Tensor]:
    """The output and the gradients of a function of q, k and v, and its log-sum-exp."""
    *arguments, gradient = (tensor.to(dtype or tensor.dtype) for tensor in tensors)
    arguments = [tensor.detach().requires_grad_() for tensor in arguments]
    out, lse, *_ = function(*arguments)
    return [out.detach(), *torch.autograd.grad(out, arguments, gradient)], lse.detach()


def compare(tensors: Sequence[Tensor], told: Told, slopes: Tensor | None) -> None:
    """Hold flash_attn_func against the reference, and both ways to call it against each other."""

    def found(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return flash_attn_func(q, k, v, **told.arguments(slopes), return_softmax_lse=True)

    def written_out(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return attention(q, k, v, told, slopes)

    dtype = tensors[0].dtype
    results, lse = with_gradients(found, tensors)
    true, sums = with_gradients(written_out, tensors, torch.float64)
    near, near_sums = with_gradients(written_out, tensors)
    agree(results, near, true)
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert off(lse, sums) <= 2 * off(near_sums, sums) + ATOL[dtype]
    assert results[0].is_contiguous()
    alone, _ = with_gradients(lambda q, k, v: (flash_attn_func(q, k, v, **told.arguments(slopes)), lse), tensors)
    agree(alone, near, true)


CASES = [
    *((torch.float64, shape) for shape in SHAPES),
    *(
        (dtype, shape)
        for dtype in (torch.float16, torch.bfloat16, torch.float32)
        for shape in ("square", "more keys", "more queries", "wide")
    ),
]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("dtype", "shape"), CASES, ids=lambda value: str(value).removeprefix("torch."))
def test_it_computes_attention(dtype: torch.dtype, shape: str, option: str, device: str) -> None:
    batch, *_, heads, _, _ = SHAPES[shape]
    told = OPTIONS[option]
    compare(inputs(SHAPES[shape], dtype, device), told, told.slopes(batch, heads, device))


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("shape", ["square", "more keys", "more queries", "one query"])
@pytest.mark.usefixtures("small_tiles")
def test_it_does_not_matter_how_it_is_divided(shape: str, option: str, device: str) -> None:
    batch, *_, heads, _, _ = SHAPES[shape]
    told = OPTIONS[option]
    compare(inputs(SHAPES[shape], torch.float64, device), told, told.slopes(batch, heads, device))


@pytest.mark.parametrize("told", [Told(), Told(alibi=1)], ids=["fused", "blocks"])
def test_scores_of_any_size_give_a_finite_result(told: Told, device: str) -> None:
    tensors = inputs((1, 40, 40, 2, 2, 32), torch.float32, device)
    tensors[0] *= 3000
    tensors[1] *= 3000  # exp of such a score is no number of any dtype
    slopes = told.slopes(1, 2, device)
    results, lse = with_gradients(
        lambda q, k, v: flash_attn_func(q, k, v, **told.arguments(slopes), return_softmax_lse=True), tensors
    )
    true, sums = with_gradients(lambda q, k, v: attention(q, k, v, told, slopes), tensors, torch.float64)
    assert all(tensor.isfinite().all() for tensor in results)
    assert off(results[0], true[0]) < 1e-5
    assert off(lse / sums, torch.ones_like(sums)) < 1e-5


@pytest.mark.parametrize("scale", [0.0, -0.2])
def test_a_scale_need_not_be_above_zero(scale: float, device: str) -> None:
    """A kernel that hides a key before it scales would show it, or give NaN."""
    compare(inputs((1, 20, 20, 2, 2, 16), torch.float32, device), Told(causal=True, softmax_scale=scale), None)


@pytest.mark.parametrize("window", [(4, -1), (-1, 4), (4, 4)])
def test_a_window_one_key_too_narrow_hides_the_corner(window: tuple[int, int], device: str) -> None:
    compare(inputs((1, 6, 6, 2, 2, 8), torch.float64, device), Told(window_size=window), None)


def test_a_negative_softcap_is_off(device: str) -> None:
    q, k, v, _ = inputs((1, 6, 6, 2, 2, 8), torch.float32, device)
    assert torch.equal(flash_attn_func(q, k, v, softcap=-1.0), flash_attn_func(q, k, v))


def test_a_query_that_sees_no_key_gives_zero_and_no_gradient(device: str) -> None:
    q, k, v, gradient = inputs((2, 12, 5, 2, 2, 16), torch.float32, device)
    q.requires_grad_()
    out, lse = flash_attn_func(q, k, v, causal=True, return_softmax_lse=True)
    out.backward(gradient)
    assert out[:, :7].count_nonzero() == 0
    assert out[:, 7:].count_nonzero() == out[:, 7:].numel()
    assert q.grad is not None
    assert q.grad[:, :7].count_nonzero() == 0
    assert torch.isneginf(lse[:, :, :7]).all()
    assert torch.isfinite(lse[:, :, 7:]).all()


@pytest.mark.parametrize(
    "told", [Told(), Told(causal=True), Told(window_size=(2, 2))], ids=["full", "causal", "window"]
)
@pytest.mark.parametrize("shape", [(2, 5, 0, 2, 2, 8), (2, 0, 5, 2, 1, 8), (0, 5, 5, 2, 2, 8), (2, 5, 5, 0, 2, 8)])
def test_empty_tensors_are_taken(shape: tuple[int, ...], told: Told, device: str) -> None:
    (out, *gradients), lse = with_gradients(
        lambda q, k, v: flash_attn_func(q, k, v, **told.arguments(None), return_softmax_lse=True),
        inputs(shape, torch.float32, device),
    )
    batch, queries, _, heads, _, width = shape
    assert out.shape == (batch, queries, heads, width)
    assert lse.shape == (batch, heads, queries)
    assert not any(tensor.count_nonzero() for tensor in (out, *gradients))
    assert torch.isneginf(lse).all()


@pytest.mark.parametrize("told", [Told(causal=True), Told(causal=True, softcap=2.0)], ids=["fused", "blocks"])
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_gradients_are_computed_for_those_that_want_them(wanted: tuple[int, ...], told: Told, device: str) -> None:
    *tensors, gradient = inputs((1, 9, 9, 2, 2, 8), torch.float64, device)
    whole, _ = with_gradients(lambda q, k, v: attention(q, k, v, told), [*tensors, gradient])
    for number in wanted:
        tensors[number].requires_grad_()
    flash_attn_func(*tensors, **told.arguments(None)).backward(gradient)
    for number, tensor in enumerate(tensors):
        if number in wanted:
            assert off(tensor.grad, whole[number + 1]) < 1e-12
        else:
            assert tensor.grad is None


@pytest.mark.parametrize("told", [Told(causal=True), Told(window_size=(5, 5))], ids=["fused", "blocks"])
def test_inputs_need_not_be_contiguous(told: Told, device: str) -> None:
    tensors = inputs((2, 20, 20, 4, 2, 16), torch.float32, device)
    strided = [torch.stack([tensor, -tensor], -1)[..., 0] for tensor in tensors]
    turned = [tensor.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2) for tensor in tensors]
    assert not any(tensor.is_contiguous() for tensor in (*strided, *turned))
    expected, _ = with_gradients(lambda q, k, v: attention(q, k, v, told), tensors, torch.float64)
    for some in (strided, turned):
        for result, truth in zip(
            with_gradients(lambda q, k, v: (flash_attn_func(q, k, v, **told.arguments(None)), q), some)[0],
            expected,
            strict=True,
        ):
            assert off(result, truth) < 1e-5


@pytest.mark.parametrize("told", [Told(causal=True), Told(causal=True, softcap=2.0)], ids=["fused", "blocks"])
def test_packed_tensors_are_taken_apart(told: Told, device: str) -> None:
    q, k, v, gradient = inputs((2, 20, 20, 4, 4, 16), torch.float32, device)
    expected, _ = with_gradients(lambda *qkv: attention(*qkv, told), [q, k, v, gradient], torch.float64)
    qkv = torch.stack([q, k, v], 2).requires_grad_()
    out = flash_attn_qkvpacked_func(qkv, **told.arguments(None))
    parts = torch.autograd.grad(out, qkv, gradient)[0].unbind(2)
    assert all(off(*pair) < 1e-5 for pair in zip((out, *parts), expected, strict=True))
    kv = torch.stack([k, v], 2).requires_grad_()
    out, lse, chances = flash_attn_kvpacked_func(q, kv, **told.arguments(None), return_attn_probs=True)
    parts = torch.autograd.grad(out, kv, gradient)[0].unbind(2)
    assert all(off(*pair) < 1e-5 for pair in zip((out, *parts), (expected[0], *expected[2:]), strict=True))
    assert lse.shape == (2, 4, 20)
    assert chances.shape == (2, 4, 20, 20)


@pytest.mark.parametrize("option", ["nothing", "causal window", "all"])
def test_probabilities_are_returned_on_request(option: str, device: str) -> None:
    told = OPTIONS[option]
    q, k, v, _ = inputs((2, 20, 30, 4, 2, 16), torch.float16, device)
    slopes = told.slopes(2, 4, device)
    out, lse, chances = flash_attn_func(q, k, v, **told.arguments(slopes), return_attn_probs=True)
    true, sums, expected = attention(q.double(), k.double(), v.double(), told, slopes)
    assert chances.dtype == torch.float16
    assert off(chances, expected) < 1e-3
    assert off(out, true) < 4e-3
    assert off(lse, sums) < 1e-4


def test_only_the_output_has_a_gradient(device: str) -> None:
    q, k, v, _ = inputs((1, 8, 8, 2, 2, 8), torch.float32, device)
    q.requires_grad_()
    for results in (
        flash_attn_func(q, k, v, return_softmax_lse=True),
        flash_attn_func(q, k, v, return_attn_probs=True),
        flash_attn_func(q, k, v, softcap=1.0, return_softmax_lse=True),
    ):
        assert [tensor.requires_grad for tensor in results] == [True, False, False][: len(results)]


def test_the_version_is_that_of_the_distribution() -> None:
    project = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{flash_attention_amd.__version__}"' in project.splitlines()


def test_everything_is_exported() -> None:
    assert sorted(flash_attention_amd.__all__) == [
        "FlashAttention",
        "flash_attn_func",
        "flash_attn_kvpacked_func",
        "flash_attn_qkvpacked_func",
        "flash_attn_varlen_func",
        "flash_attn_varlen_kvpacked_func",
        "flash_attn_varlen_qkvpacked_func",
        "flash_attn_with_kvcache",
    ]
    assert all(callable(getattr(flash_attention_amd, name)) for name in flash_attention_amd.__all__)
