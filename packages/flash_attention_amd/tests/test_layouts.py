"""Tensors of any strides: right results from all of them, and what kernels get on ROCm.

No AMD GPU ran these tests. Those for ROCm only pretend: torch says that it is built for ROCm, and a stand-in has the
two faults that were reported for ROCm's kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from flash_attention_amd import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache, flex, fused
from reference import Told, attention, off
from test_dense import inputs, with_gradients
from test_memory import Watch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Layout = Callable[[Tensor], Tensor]

LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda x: x.contiguous(),
    "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "packed": lambda x: torch.stack([x, x + 1, x - 1], -2)[..., 0, :],
    "some heads": lambda x: torch.cat([x + 1, x, x - 1], -2)[..., x.shape[-2] : 2 * x.shape[-2], :],
    "strided": lambda x: torch.stack([x, -x], -1)[..., 0],
}
"""Ways to store a (..., seqlen, heads, headdim) tensor."""

GRADIENTS: dict[str, Layout] = {
    "contiguous": LAYOUTS["contiguous"],
    "transposed": LAYOUTS["transposed"],
    "one row": lambda x: x[:1, :1, :1].clone().expand_as(x),
    "one number": lambda x: x[0, 0, 0, 0].clone().expand_as(x),
}
"""Ways to store a gradient of the output; sum().backward() gives the last one, whose strides are all 0."""

WAYS = {"fused": Told(), "causal": Told(causal=True), "blocks": Told(window_size=(5, 5))}
SHAPE = (2, 24, 24, 4, 2, 16)

_NAMES = list(LAYOUTS)
MIXES = [(q, k, _NAMES[(_NAMES.index(q) + _NAMES.index(k)) % len(_NAMES)]) for q, k in product(_NAMES, repeat=2)]
"""Layouts of q, k and v: each pair of layouts of any two of them is in one mix."""


def wrong(told: Told, dtype: torch.dtype, device: str, shape: tuple[int, ...] = SHAPE) -> list[tuple[str, ...]]:
    """The layouts of q, k, v and the gradient, of `MIXES`, for which the output or a gradient is off from float64."""
    *tensors, gradient = inputs(shape, dtype, device)
    limit = {torch.float16: 1e-2, torch.float32: 1e-5}[dtype]
    found = []
    for name, layout in GRADIENTS.items():
        given = layout(gradient)
        expected, _ = with_gradients(lambda *qkv: attention(*qkv, told), [*tensors, given], torch.float64)
        for names in MIXES:
            stored = [LAYOUTS[one](tensor) for one, tensor in zip(names, tensors, strict=True)]
            results, _ = with_gradients(
                lambda q, k, v: (flash_attn_func(q, k, v, **told.arguments(None)), q), [*stored, given]
            )
            scale = max(1.0, *(float(tensor.abs().max()) for tensor in expected))
            if not all(off(*pair) < limit * scale for pair in zip(results, expected, strict=True)):
                found.append((*names, name))
    return found


@pytest.mark.parametrize(("way", "dtype"), [*((way, torch.float32) for way in WAYS), ("fused", torch.float16)], ids=str)
def test_each_mix_of_layouts_gives_the_same_result(way: str, dtype: torch.dtype, device: str) -> None:
    assert wrong(WAYS[way], dtype, device) == []


class FaultyKernel:
    """Stands in for `scaled_dot_product_attention` with the two faults of ROCm's kernels, and notes what it gets.

    It reads the values with the strides of the keys, and the gradient of the output with the strides of the output.
    Strides that leave the memory of a tensor are an error, which on a GPU would be a memory fault or other numbers.
    """

    def __init__(self) -> None:
        self.given: list[tuple[Tensor, Tensor, Tensor]] = []
        self.gradients: list[tuple[Tensor, Tensor]] = []
        """The output and its gradient, for each backward pass."""
        self.contiguous = False
        """Whether the output is contiguous, as of ROCm's flash kernel, or transposed, as of its efficient kernel."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *more: Any, **options: Any) -> Tensor:
        self.given.append((q, k, v))
        v = v.as_strided(v.shape, k.stride(), v.storage_offset())
        out = scaled_dot_product_attention(q, k, v, *more, **options)
        out = out.contiguous() if self.contiguous else out.transpose(1, 2).contiguous().transpose(1, 2)
        if out.requires_grad:
            shape, strides, same = out.shape, out.stride(), out.detach()

            def misread(gradient: Tensor) -> Tensor:
                self.gradients.append((same, gradient))
                return gradient.as_strided(shape, strides, gradient.storage_offset())

            out.register_hook(misread)
        return out


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FaultyKernel:
    """A stand-in for the kernels of ROCm."""
    faulty = FaultyKernel()
    monkeypatch.setattr(fused, "scaled_dot_product_attention", faulty)
    return faulty


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch says that it is built for ROCm. No AMD GPU is used."""
    monkeypatch.setattr(torch.version, "hip", "7.0.51831")


@pytest.mark.parametrize(
    ("shape", "way", "contiguous"),
    [
        (SHAPE, "fused", True),
        (SHAPE, "causal", False),
        ((1, 24, 24, 1, 1, 16), "fused", False),
        ((2, 1, 24, 2, 2, 16), "fused", True),
        ((2, 1, 24, 2, 2, 16), "causal", False),
        ((2, 30, 24, 2, 2, 16), "causal", True),
    ],
    ids=str,
)
@pytest.mark.usefixtures("rocm")
def test_a_stand_in_for_rocms_faulty_kernel_gives_right_results(
    shape: tuple[int, ...], way: str, contiguous: bool, kernel: FaultyKernel
) -> None:
    torch.manual_seed(0)
    kernel.contiguous = contiguous
    assert wrong(WAYS[way], torch.float32, "cpu", shape) == []
    if way == "fused" or shape[1] >= shape[2]:  # torch has no kernel for fewer queries than keys with a causal mask
        assert len(kernel.given) == len(kernel.gradients) == len(MIXES) * len(GRADIENTS)
    for tensors in kernel.given:
        assert all(tensor.is_contiguous() for tensor in tensors)
    assert all(gradient.stride() == out.stride() for out, gradient in kernel.gradients)


@pytest.mark.usefixtures("kernel")
def test_the_stand_in_is_faulty() -> None:
    """Where the rule for ROCm does not apply, its results are wrong, so the tests above fail without the rule."""
    torch.manual_seed(0)
    q, k, v, gradient = inputs(SHAPE, torch.float32, "cpu")
    expected, _ = with_gradients(lambda *qkv: attention(*qkv, Told()), [q, k, v, gradient])

    def results(v: Tensor, gradient: Tensor) -> list[float]:
        found, _ = with_gradients(lambda q, k, v: (flash_attn_func(q, k, v), q), [q, k, v, gradient])
        return [off(*pair) for pair in zip(found, expected, strict=True)]

    assert max(results(v, gradient)) < 1e-5
    assert results(LAYOUTS["transposed"](v), gradient)[0] > 1
    assert results(v, LAYOUTS["transposed"](gradient))[0] < 1e-5
    assert min(results(v, LAYOUTS["transposed"](gradient))[1:]) > 0.1
    with pytest.raises(RuntimeError, match="out of bounds"):
        results(v, GRADIENTS["one number"](gradient))


@pytest.mark.usefixtures("rocm")
def test_a_stand_in_for_rocm_gets_one_layout_from_packed_sequences_and_caches(kernel: FaultyKernel) -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([0, 9, 9, 20])
    qkv = torch.randn(20, 3, 2, 16, requires_grad=True)
    flash_attn_varlen_func(*qkv.unbind(1), lengths, lengths, 11, 11).sum().backward()
    exact = qkv.detach().double().requires_grad_()
    for part in (slice(0, 9), slice(9, 20)):
        attention(*exact[None, part].unbind(2), Told())[0].sum().backward()
    assert off(qkv.grad, exact.grad) < 1e-5
    q, k, v = (torch.randn(2, length, 2, 16) for length in (1, 30, 30))
    out = flash_attn_with_kvcache(q, k, v, cache_seqlens=torch.tensor([25, 30]))
    for one, length in enumerate((25, 30)):
        some = (tensor[one : one + 1].double() for tensor in (q, k[:, :length], v[:, :length]))
        assert off(out[one : one + 1], attention(*some, Told())[0]) < 1e-5
    assert len(kernel.given) == 4
    assert all(tensor.is_contiguous() for tensors in kernel.given for tensor in tensors)
    assert [gradient.stride() == out.stride() for out, gradient in kernel.gradients] == [True, True]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("rocm")
def test_a_stand_in_for_flex_attention_on_rocm_gets_one_layout(
    layout: str, kernel: FaultyKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flex, "available", lambda _: True)
    monkeypatch.setattr(flex, "_function", lambda _: lambda q, k, v, *_: (kernel(q, k, v, enable_gqa=True), None))
    tensors = [LAYOUTS[layout](tensor).requires_grad_() for tensor in inputs(SHAPE, torch.float32, "cpu")[:3]]
    flash_attn_func(*tensors, softcap=2.0).sum().backward()
    ((out, gradient),) = kernel.gradients
    assert all(tensor.is_contiguous() for tensor in kernel.given[0])
    assert gradient.stride() == out.stride()


@pytest.mark.usefixtures("rocm")
def test_a_stand_in_for_rocm_gets_tensors_of_its_layout_without_a_copy(kernel: FaultyKernel) -> None:
    tensors = [LAYOUTS["transposed"](tensor) for tensor in inputs(SHAPE, torch.float32, "cpu")[:3]]
    flash_attn_func(*tensors)
    assert [x.data_ptr() for x in kernel.given[0]] == [tensor.data_ptr() for tensor in tensors]


@pytest.mark.skipif(torch.version.hip is not None, reason="kernels of ROCm get copies")
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "packed", "some heads"])
def test_nothing_is_copied_without_rocm(layout: str) -> None:
    *tensors, gradient = inputs((2, 24, 24, 4, 4, 16), torch.float32, "cpu")
    tensors = [LAYOUTS[layout](tensor).detach().requires_grad_() for tensor in tensors]
    with Watch() as watch:
        out = flash_attn_func(*tensors)
        torch.autograd.grad(out, tensors, gradient)
    kernel = "_scaled_dot_product_flash_attention_for_cpu"
    expected = {kernel, f"{kernel}_backward", "_fused_sdp_choice", "transpose", "detach"}
    if layout == "transposed":  # the output has the strides of q then, and is returned contiguous
        expected.add("clone")
    assert {name.partition(".")[0] for name in watch.operations} == expected


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own code
@pytest.mark.usefixtures("rocm")
def test_it_can_be_compiled_where_torch_says_rocm() -> None:
    tensors = [tensor.requires_grad_() for tensor in inputs(SHAPE, torch.float32, "cpu")[:3]]
    expected = torch.autograd.grad(flash_attn_func(*tensors).sum(), tensors)
    out = torch.compile(flash_attn_func, backend="aot_eager")(*tensors)
    assert all(off(*pair) < 1e-5 for pair in zip(torch.autograd.grad(out.sum(), tensors), expected, strict=True))
