"""torch's own attention functions, and textbook attention.

Each takes queries, keys, values and `CallOptions`, and returns the output. All are (batch, tokens, heads, head dim), or
(tokens, heads, head dim) where sequences are packed. A function raises `NotRunError` for options that it does not have.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, reduce
from importlib import import_module
from types import FunctionType
from typing import Any

import torch
from call_options import CallOptions, NotRunError, Tensor  # type: ignore[import-not-found]  # beside this program


def sdpa(queries: Tensor, keys: Tensor, values: Tensor, options: CallOptions) -> Tensor:
    """torch's own fused attention, with the kernel that torch chooses. Call it in `sdpa_context`."""
    unsupported = {
        "a window": options.window != (-1, -1),
        "softcap": bool(options.softcap),
        "ALiBi slopes": options.slopes is not None,
        "packed sequences": bool(options.lengths),
    }
    for name, is_set in unsupported.items():
        if is_set:
            raise NotRunError(f"SDPA has no option for {name}")
    if options.deterministic and queries.device.type != "cpu" and not _has_flash_kernels(queries):
        raise NotRunError("SDPA's flash kernel, which can be deterministic, needs float16 or bfloat16")
    heads = [tensor.transpose(1, 2) for tensor in (queries, keys, values)]
    grouped = queries.shape[2] != keys.shape[2]
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(*heads, is_causal=options.causal, enable_gqa=grouped).transpose(1, 2)


@contextmanager
def sdpa_context(options: CallOptions) -> Iterator[None]:
    """What `sdpa` and its backward pass run in: for deterministic gradients, torch's mode and a kernel that has it."""
    if not options.deterministic:
        yield
        return
    attention = import_module("torch.nn.attention")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
            yield
    finally:
        torch.use_deterministic_algorithms(before)


def _has_flash_kernels(tensor: Tensor) -> bool:
    """Whether torch's FlashAttention for GPUs takes it."""
    return tensor.device.type == "cuda" and tensor.dtype in (torch.float16, torch.bfloat16)


def require_flex(device: str) -> None:
    """Raises `NotRunError` if torch cannot compile FlexAttention for the device ``cpu`` or ``cuda``."""
    try:
        import_module("torch.nn.attention.flex_attention")
    except ImportError:
        raise NotRunError(f"torch {torch.__version__} has no FlexAttention") from None
    if device == "cuda" and not import_module("torch.utils._triton").has_triton():
        raise NotRunError("torch finds no Triton, which compiles FlexAttention")
    # torch's compiler uses g++ on a CPU; Triton compiles a launcher in C
    compilers = [os.environ.get("CXX") or "g++"] if device == "cpu" else [os.environ.get("CC") or "cc", "gcc", "clang"]
    if not any(map(shutil.which, compilers)):
        raise NotRunError(f"no compiler: {' or '.join(compilers)}")


def flex(queries: Tensor, keys: Tensor, values: Tensor, options: CallOptions) -> Tensor:
    """torch's FlexAttention, compiled. The first call with some options compiles it."""
    if options.deterministic:
        raise NotRunError("torch does not document that FlexAttention's gradients have the same bits each time")
    if queries.device.type == "cpu" and queries.requires_grad:
        raise NotRunError("FlexAttention has no backward pass on a CPU")
    heads = [(tensor[None] if options.lengths else tensor).transpose(1, 2) for tensor in (queries, keys, values)]
    output = _compiled_flex(options, heads[0].shape[2], heads[0].shape[1] != heads[1].shape[1], queries.device)(*heads)
    return output.transpose(1, 2)[0] if options.lengths else output.transpose(1, 2)


@lru_cache(maxsize=1)  # the mask of an earlier length would take memory
def _compiled_flex(options: CallOptions, tokens: int, grouped: bool, device: Any) -> Callable[..., Tensor]:
    """The function for (batch, heads, tokens, head dim), which has the block mask and the changes of scores in it."""
    attend = import_module("torch.nn.attention.flex_attention").flex_attention
    mask, score = _block_mask(options, tokens, device), _changed_score(options)

    def compute(queries: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
        if not torch.compiler.is_compiling():  # torch would make the full matrix of scores
            raise NotRunError("torch's compiler is switched off")
        return attend(queries, keys, values, score_mod=score, block_mask=mask, enable_gqa=grouped)

    # torch compiles the same code 8 times at most
    copied = FunctionType(compute.__code__.replace(), compute.__globals__, closure=compute.__closure__)
    compiled = torch.compile(copied, dynamic=False, fullgraph=True)
    return lambda *heads: compiled(*heads, mask)


def _block_mask(options: CallOptions, tokens: int, device: Any) -> Any:
    """FlexAttention's block mask; None if every key is visible.

    In packed sequences, a key is visible only to queries of its own document: its sequence.
    """
    before, after = options.limits
    if before is None and after is None and not options.lengths:
        return None
    if options.lengths:
        lengths = torch.tensor(options.lengths, device=device)
        documents = torch.arange(len(lengths), device=device).repeat_interleave(lengths)

    def visible(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        conditions = []
        if before is not None:
            conditions.append(key >= query - before)
        if after is not None:
            conditions.append(key <= query + after)
        if options.lengths:
            conditions.append(documents[query] == documents[key])
        seen = conditions[0]
        for condition in conditions[1:]:
            seen = seen & condition
        return seen

    create = import_module("torch.nn.attention.flex_attention").create_block_mask
    # compiled, it does not make the full matrix: 20 GB for 150,000 packed tokens
    compiled = {"_compile": True} if "_compile" in inspect.signature(create).parameters else {}
    create = create if compiled else torch.compile(create)
    return create(visible, None, None, tokens, tokens, device=str(device), **compiled)


def _changed_score(options: CallOptions) -> Callable[..., Tensor] | None:
    """FlexAttention's change of each score; None without one."""
    cap, slopes = options.softcap, options.slopes
    if cap:
        return lambda score, _batch, _head, _query, _key: cap * torch.tanh(score / cap)
    if slopes is not None:
        return lambda score, _batch, head, query, key: score - slopes[head] * (query - key).abs()
    return None


def require_varlen() -> None:
    """Raises `NotRunError` if torch has no attention for packed sequences."""
    try:
        import_module("torch.nn.attention.varlen")
    except ImportError:
        raise NotRunError(f"torch {torch.__version__} has no torch.nn.attention.varlen; 2.10 has") from None


@lru_cache
def _varlen_function() -> tuple[Callable[..., Tensor], frozenset[str]]:
    """torch's function, and the names of its arguments, which differ between versions."""
    function = import_module("torch.nn.attention.varlen").varlen_attn
    return function, frozenset(inspect.signature(function).parameters)


def varlen(queries: Tensor, keys: Tensor, values: Tensor, options: CallOptions) -> Tensor:
    """torch's own fused attention for packed sequences."""
    if not options.lengths:
        raise NotRunError("computes packed sequences only: add --preset varlen")
    if not _has_flash_kernels(queries):
        raise NotRunError("needs a GPU and float16 or bfloat16")
    function, names = _varlen_function()
    causal: dict[str, Any] = {"window_size": (-1, 0 if options.causal else -1)}
    if "is_causal" in names:  # torch 2.10
        causal = {"is_causal": options.causal}
    grouped = {"enable_gqa": True} if "enable_gqa" in names and queries.shape[1] != keys.shape[1] else {}
    longest = max(options.lengths)
    return function(queries, keys, values, options.starts, options.starts, longest, longest, **causal, **grouped)


def plain(queries: Tensor, keys: Tensor, values: Tensor, options: CallOptions) -> Tensor:
    """Textbook attention: the full matrix of scores, masked, softmax, times the values, all in the input dtype."""
    if not options.lengths:
        return _textbook(queries, keys, values, options)
    split = (tensor.split(options.lengths) for tensor in (queries, keys, values))
    return torch.cat([_textbook(q, k, v, options) for q, k, v in zip(*split, strict=True)])


def _textbook(queries: Tensor, keys: Tensor, values: Tensor, options: CallOptions) -> Tensor:
    queries, keys, values = (tensor.transpose(-3, -2) for tensor in (queries, keys, values))
    groups = queries.shape[-3] // keys.shape[-3]
    if groups > 1:
        keys, values = (tensor.repeat_interleave(groups, -3) for tensor in (keys, values))
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    return (changed_scores(scores, options).softmax(-1) @ values).transpose(-3, -2)


def changed_scores(scores: Tensor, options: CallOptions, first: int = 0) -> Tensor:
    """The scores (..., heads, queries, keys) of a sequence after softcap, ALiBi and mask.

    `first` is the place of the first query in its sequence.
    """
    if options.softcap:
        scores = options.softcap * torch.tanh(scores / options.softcap)
    place = torch.arange(first, first + scores.shape[-2], dtype=torch.int32, device=scores.device)[:, None]
    key = torch.arange(scores.shape[-1], dtype=torch.int32, device=scores.device)
    if options.slopes is not None:
        scores = scores - options.slopes.to(scores.dtype)[:, None, None] * (place - key).abs()
    before, after = options.limits
    hidden = [] if after is None else [key > place + after]
    hidden += [] if before is None else [key < place - before]
    return scores.masked_fill(reduce(operator.or_, hidden), -math.inf) if hidden else scores
