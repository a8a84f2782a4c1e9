"""The options and the argument checks that flash-attn's functions share."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""flash-attn itself supports the first two."""


def exact(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the log-sum-exp, and of arithmetic by blocks, for inputs of a dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Options(NamedTuple):  # made by each call: a dataclass takes three times the time
    """The options that all functions share, named as in flash-attn."""

    scale: float
    dropout_p: float = 0.0
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    """0 for none."""
    alibi_slopes: Tensor | None = None
    """(heads,) or (batch, heads), without gradient."""
    deterministic: bool = False


class Attended(NamedTuple):
    """The results of attention."""

    out: Tensor
    """(batch, queries, heads, headdim), contiguous, in the dtype of q."""
    lse: Tensor | None
    """The log of the sum of exp(score) over the keys that a query sees, -inf where it sees none: (batch, heads,
    queries) in float32 (float64 for float64 inputs); None if not requested."""
    probabilities: Tensor | None
    """(batch, heads, queries, keys) in the dtype of q, negative where dropout dropped one; None if not requested."""


Result: TypeAlias = Tensor | tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]
"""The output, alone or with the log-sum-exp, or with the log-sum-exp and the probabilities."""


def result(found: Attended, *, lse: bool, probabilities: bool) -> Result:
    """The return value of a function with these options."""
    if probabilities:
        assert found.lse is not None and found.probabilities is not None
        return found.out, found.lse, found.probabilities
    if lse:
        assert found.lse is not None
        return found.out, found.lse
    return found.out


def options(
    q: Tensor,
    batch: int,
    *,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    alibi_slopes: Tensor | None,
    deterministic: bool,
) -> Options:
    """Check the options of a call for queries (..., heads, headdim). Raises ValueError for one out of range."""
    shape = q.shape
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p must be at least 0 and below 1, not {dropout_p}")
    if len(window_size) != 2:
        raise ValueError(f"window_size must be (left, right), not {window_size}")
    return Options(
        shape[-1] ** -0.5 if softmax_scale is None else float(softmax_scale),
        dropout_p,
        causal,
        window_size,
        max(0.0, softcap),
        None if alibi_slopes is None else _slopes(alibi_slopes, batch, shape[-2], q.device),
        deterministic,
    )


def _slopes(slopes: Tensor, batch: int, heads: int, device: torch.device) -> Tensor:
    if slopes.shape not in ((heads,), (batch, heads)):
        raise ValueError(
            f"alibi_slopes must be ({heads},) or ({batch}, {heads}): (heads,) or (batch, heads); "
            f"found {tuple(slopes.shape)}"
        )
    if slopes.device != device:
        raise ValueError(f"alibi_slopes must be on {device} as q, not on {slopes.device}")
    return slopes.detach() if slopes.requires_grad else slopes


def check(q: Tensor, k: Tensor, v: Tensor, dimensions: str) -> None:
    """Check that queries, keys and values fit each other; k and v can have fewer heads.

    `dimensions` names the dimensions in errors, such as "batch, seqlen, heads, headdim".
    Raises TypeError for a dtype, ValueError for a shape or device.
    """
    # every call comes here: loops and reading a shape twice take twice the time
    shape, others = q.shape, k.shape
    count = dimensions.count(",") + 1
    if not len(shape) == len(others) == v.dim() == count:
        name, tensor = next(pair for pair in zip("qkv", (q, k, v), strict=True) if pair[1].dim() != count)
        raise ValueError(f"{name} must be ({dimensions}), not {tuple(tensor.shape)}")
    dtype, device = q.dtype, q.device
    if dtype not in DTYPES:
        raise TypeError(f"q must be float16, bfloat16, float32 or float64, not {dtype}")
    if not dtype == k.dtype == v.dtype:
        name, tensor = ("k", k) if k.dtype != dtype else ("v", v)
        raise TypeError(f"q, k and v must have one dtype: q has {dtype}, {name} has {tensor.dtype}")
    if not device == k.device == v.device:
        name, tensor = ("k", k) if k.device != device else ("v", v)
        raise ValueError(f"q, k and v must be on one device: q is on {device}, {name} on {tensor.device}")
    if others != v.shape:
        raise ValueError(f"k and v must have one shape: k has {tuple(others)}, v has {tuple(v.shape)}")
    if shape[-1] != others[-1]:
        raise ValueError(f"q and k must have one headdim: q has {shape[-1]}, k has {others[-1]}")
    heads, groups = shape[-2], others[-2]
    if not groups or heads % groups:
        raise ValueError(f"the heads of q, {heads}, must be a multiple of those of k, {groups}")


def check_batch(q: Tensor, k: Tensor) -> None:
    """Raises ValueError if q and k have different batch sizes."""
    if q.shape[0] != k.shape[0]:
        raise ValueError(f"q and k must have one batch size: q has {q.shape[0]}, k has {k.shape[0]}")


def unpacked(packed: Tensor, name: str, count: int, dimensions: str) -> tuple[Tensor, ...]:
    """Unpack `count` tensors along the dimension before the heads; `dimensions` names those of each tensor.

    Raises ValueError for a wrong shape.
    """
    where = dimensions.count(",") - 1
    if packed.dim() != where + 3 or packed.shape[where] != count:
        whole = dimensions.replace("heads", f"{count}, heads")
        raise ValueError(f"{name} must be ({whole}), not {tuple(packed.shape)}")
    return packed.unbind(where)
