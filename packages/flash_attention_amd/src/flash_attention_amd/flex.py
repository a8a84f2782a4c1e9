"""Attention with torch's FlexAttention: Triton kernels that torch compiles for windows, softcap and ALiBi slopes.

For each `Kind` of call, functions are compiled for the first shapes, and one for all others. Without compilation,
FlexAttention makes the full matrix of scores, so a call that torch does not compile is refused.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import count
from time import perf_counter
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch._functorch import config as functorch
from torch.nn.attention import flex_attention as flex

from flash_attention_amd.layout import from_kernel, to_kernel
from flash_attention_amd.options import Attended, Options
from flash_attention_amd.visible import Band

VARIABLE = "FLASH_ATTENTION_AMD_FLEX"
"""Environment variable: 0 turns FlexAttention off."""

DEVICES = ("cuda",)
"""Device types that FlexAttention is used on. On a CPU it has no backward pass."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32)

WIDTHS = range(16, 257)
"""Head dimensions. Triton's matrix products need 16; more than 256 do not fit into the shared memory of many GPUs."""

BLOCK = 128
"""Queries, and keys, in a block of the mask; FlexAttention's default."""

OWN = 4
"""Shapes of a kind that get a function of their own. Python needs longer to launch one for all shapes: with softcap 144
instead of 101 µs on an H100."""

log = logging.getLogger("flash_attention_amd")


class Kind(NamedTuple):
    """What the kernels of a call depend on, apart from lengths."""

    device: str
    dtype: torch.dtype
    width: int
    grouped: bool
    scale: float
    softcap: float
    slopes: int
    """Dimensions of the ALiBi slopes: 0 for none, 1 for (heads,), 2 for (batch, heads)."""
    left: int | None
    right: int | None
    """The limits of the band, constants of the kernels: read from memory, they cost ALiBi 1.5 times the time."""
    square: bool
    """Whether query i is aligned with key i. Otherwise the shift is read from memory, so that it can change."""
    whole: bool
    """Whether queries and keys are whole blocks, so that the kernels need not look for an end."""
    single: bool
    """Whether there is one query. Only then torch may use its decoding kernel, which torch 2.11 compiles for the number
    of queries of the first call, and for no more than 128 rows of queries and grouped heads."""
    lse: bool
    gradients: bool


class _NotCompiledError(Exception):
    """torch's compiler is switched off here, or has reached its limit of recompilations."""


_failed: set[Kind] = set()


def attend(
    q: Tensor, k: Tensor, v: Tensor, options: Options, seen: Band, *, lse: bool, gradients: bool
) -> Attended | None:
    """Attention of non-empty (batch, seqlen, heads, headdim) tensors; None if FlexAttention cannot compute it here.

    The last dimension must be contiguous. Dropout and `deterministic` are not used. `gradients` says whether the output
    needs them. A failure to compile gives one warning, and None from then on.
    """
    device, dtype, (_, _, heads, width) = q.device.type, q.dtype, q.shape
    if dtype not in DTYPES or width not in WIDTHS or not available(device):
        return None
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):  # it would change the dtype
            return attend(q, k, v, options, seen, lse=lse, gradients=gradients)
    slopes = options.alibi_slopes
    kind = Kind(
        device,
        dtype,
        width,
        heads != k.shape[2],
        options.scale,
        options.softcap,
        0 if slopes is None else slopes.dim(),
        seen.left,
        seen.right,
        not seen.shift,
        not (seen.queries % BLOCK or seen.keys % BLOCK),
        seen.queries == 1,
        lse,
        gradients,
    )
    if _failed and kind in _failed:
        return None
    try:
        out, sums = _run(kind, q, k, v, seen, slopes)
    except _NotCompiledError:
        return None
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # torch's compiler, Triton and the C compiler have no common type of error
        if not _failed:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            warnings.warn(
                f"FlexAttention failed, so a slower way computes; {VARIABLE}=0 turns it off: {reason}",
                RuntimeWarning,
                stacklevel=2,
            )
        log.debug("FlexAttention failed: %s", kind, exc_info=True)
        _failed.add(kind)
        return None
    out = from_kernel(out)
    if sums is not None:
        sums = sums.detach().contiguous()
        sums[:, :, : seen.blind] = -math.inf  # torch does not document what FlexAttention returns there
    return Attended(out, sums, None)


@lru_cache
def available(device: str) -> bool:
    """Whether torch can compile FlexAttention for a device type; read once."""
    if os.environ.get(VARIABLE) == "0" or device not in DEVICES or not hasattr(flex, "AuxRequest"):
        return False
    from torch.utils._triton import has_triton

    compilers = [os.environ.get("CC") or "cc", "gcc", "clang"]
    return (device == "cpu" or has_triton()) and any(map(shutil.which, compilers))


def _run(
    kind: Kind, q: Tensor, k: Tensor, v: Tensor, seen: Band, slopes: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The output and the log-sum-exp, (batch, heads, queries, ...)."""
    mask, shift = block_mask(seen, q.device)
    return _function(kind)(*to_kernel(q, k, v), mask, slopes, shift)


Function: TypeAlias = Callable[..., tuple[Tensor, Tensor | None]]
"""(q, k, v, block mask, slopes, shift) -> (output, log-sum-exp), of (batch, heads, length, headdim) tensors."""


@lru_cache(maxsize=256)
def _function(kind: Kind) -> Function:
    """The function of a kind, which is compiled for the first shapes, and then for any shape."""
    own: dict[tuple[torch.Size, torch.Size], Function] = {}
    general = _new_function(kind, dynamic=None)
    if kind.single:  # the keys grow with each token that is generated
        return general

    def run(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor | None]:
        shapes = q.shape, k.shape
        function = own.get(shapes)
        if function is None:
            if len(own) >= OWN:
                return general(q, k, v, *more)
            function = own[shapes] = _new_function(kind, dynamic=False)
        try:
            return function(q, k, v, *more)
        except _NotCompiledError:  # torch compiles a function only 8 times, here for other strides
            return general(q, k, v, *more)

    return run


_numbers = count()


def _new_function(kind: Kind, *, dynamic: bool | None) -> Function:
    """A function that is compiled in its first call: if `dynamic` is False, for the shapes of each call.

    If it is None, the second shape makes the function one for any shape.
    """

    def compute(
        q: Tensor, k: Tensor, v: Tensor, mask: Any, slopes: Tensor, shift: Tensor | int
    ) -> tuple[Tensor, Tensor | None]:
        if not torch.compiler.is_compiling():
            raise _NotCompiledError

        def score(value: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            if kind.softcap:
                value = kind.softcap * torch.tanh(value / kind.softcap)
            if kind.slopes:
                slope = slopes[head] if kind.slopes == 1 else slopes[batch, head]
                value = value - slope.float() * (query + shift - key).abs()
            return value

        chosen = {} if kind.single else {"FORCE_USE_FLEX_ATTENTION": True}
        if kind.whole:  # torch does not see it in a function for any shape
            chosen["IS_DIVISIBLE"] = True
        out, aux = flex.flex_attention(
            q,
            k,
            v,
            score_mod=score if kind.softcap or kind.slopes else None,
            block_mask=mask,
            scale=kind.scale,
            enable_gqa=kind.grouped,
            kernel_options=chosen,
            return_aux=flex.AuxRequest(lse=kind.lse),
        )
        return out, aux.lse

    # torch 2.11's compiler looks for gradients of its inputs, whatever they are
    warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", module="torch._dynamo")
    # torch limits recompilations for each code object, so each function gets its own
    code = compute.__code__.replace(co_name=f"flex_attention_{next(_numbers)}")
    function = FunctionType(code, compute.__globals__, code.co_name, None, compute.__closure__)
    compiled: Function = torch.compile(function, dynamic=dynamic, backend=partial(_compile, kind))
    return compiled


def _compile(kind: Kind, graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """Compile a graph of the function of a kind, as torch's default backend does."""
    before = perf_counter()
    # torch would otherwise compile the backward pass when it first runs, where a failure could not be handled
    with warnings.catch_warnings(), functorch.patch(force_non_lazy_backward_lowering=kind.gradients):
        warnings.simplefilter("ignore")  # of the compiler, about its own code
        compiled = torch._dynamo.lookup_backend("inductor")(graph, inputs)
    log.debug("compiled FlexAttention in %.1f s: %s", perf_counter() - before, kind)
    return compiled


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # a cached tensor of inference mode could not be used in training
def block_mask(seen: Band, device: torch.device) -> tuple[Any, Tensor | int]:
    """FlexAttention's block mask for a band, None for a full one; and the shift of the band, a tensor unless it is 0.

    The mask is made from the limits of blocks: one number for each block of 128 queries and 128 keys, not of scores.
    """
    shift = torch.tensor(seen.shift, dtype=torch.int32, device=device) if seen.shift else 0
    if seen.full:
        return None, shift
    left, right = seen.left, seen.right
    first = torch.arange(0, seen.queries, BLOCK, device=device)[:, None]
    start = torch.arange(0, seen.keys, BLOCK, device=device)
    last, end = first + BLOCK - 1, start + BLOCK - 1
    # the last block of queries or of keys is partly visible unless it has all of its rows
    whole = (last < seen.queries) & (end < seen.keys)
    some = torch.ones_like(whole)
    if left is not None:
        whole &= start >= last + seen.shift - left
        some &= end >= first + seen.shift - left
    if right is not None:
        whole &= end <= first + seen.shift + right
        some &= start <= last.clamp(max=seen.queries - 1) + seen.shift + right

    def visible(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        after = key - query - shift
        if left is None:
            return after <= right
        return after >= -left if right is None else (after >= -left) & (after <= right)

    blocks = [part for matrix in (some & ~whole, whole) for part in _ordered(matrix)]
    lengths = seen.queries, seen.keys
    made = flex.BlockMask.from_kv_blocks(*blocks, BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=lengths)
    return made, shift


def _ordered(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """How many columns of each row are set, and the columns with these first, as FlexAttention expects them."""
    columns = matrix.int().argsort(descending=True, stable=True)
    return matrix.sum(-1, dtype=torch.int32)[None, None], columns.int()[None, None].contiguous()
