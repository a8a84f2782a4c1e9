"""Call the public functions of flash-attn with the inputs of a case, and count the calls that reach its backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate
from typing import Any

import torch
from attention_cases import AttentionCase, Layout  # type: ignore[import-not-found]
from attention_reference import (  # type: ignore[import-not-found]
    DROPOUT,
    Attention,
    Tensor,
    alibi_slopes,
    rotary_table,
)


def find_backend(interface: Any) -> Any:
    """Return the backend of the module flash_attn.flash_attn_interface. Its name is flash_attn_cuda up to 2.6.3."""
    return getattr(interface, "flash_attn_gpu", None) or interface.flash_attn_cuda


@contextmanager
def counting_calls(module: Any, functions: Iterable[str]) -> Iterator[Counter[str]]:
    """Count the calls of functions of a module during the block, by the defining module: `flash_attn_2_cuda.fwd`."""
    calls: Counter[str] = Counter()
    originals = {name: getattr(module, name) for name in functions}
    for name, function in originals.items():

        def counted(*arguments: Any, _function: Any = function, _name: str = name, **options: Any) -> Any:
            calls[f"{_function.__module__}.{_name}"] += 1
            return _function(*arguments, **options)

        setattr(module, name, counted)
    try:
        yield calls
    finally:
        for name, function in originals.items():
            setattr(module, name, function)


GUARD = 1024
"""Elements before and after a tensor: more than the rows that a case appends after the end of a cache."""

PAGE = 256
"""Rows of a page of a cache: the least that upstream's functions take."""

FAR = 1 << 31
"""The elements between two sequences that a signed 32-bit offset cannot reach."""


def guarded(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor with NaN before and after it, in the same storage."""
    memory = tensor.new_full((tensor.numel() + 2 * GUARD,), torch.nan)
    return memory[GUARD:-GUARD].view(tensor.shape).copy_(tensor)


def require_guards(tensors: Iterable[Tensor]) -> None:
    """Raise ValueError if a call wrote before or after one of these guarded tensors."""
    for tensor in tensors:
        memory = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
        if not (memory[:GUARD].isnan().all() and memory[-GUARD:].isnan().all()):
            raise ValueError("the call wrote outside of its tensors")


def lay_out(tensor: Tensor, layout: Layout) -> Tensor:
    """Return a (batch, seqlen, heads, headdim) tensor in a layout, differentiably."""
    if layout == "heads":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "packed":
        return torch.stack([tensor] * 3, -2)[..., 1, :]
    return tensor


def public_function(module: str, case: AttentionCase, device: str) -> Attention:
    """Return a function that calls the package's public function for a case.

    It takes rows of all sequences, (rows, heads, headdim), and returns the output so, and the log-sum-exp, (heads,
    rows), or None where the case does not ask for it. The rows of a cache that hold no key become NaN.
    """
    if case.cache:
        return _CachedCall(module, case, device)
    return _PackedCall(module, case, device) if case.packed else _Call(module, case, device)


class _Call:
    """A call of flash_attn_func."""

    name = "flash_attn_func"

    def __init__(self, module: str, case: AttentionCase, device: str) -> None:
        self.package, self.case, self.device = import_module(module), case, device
        self.options: dict[str, Any] = {"causal": case.causal, "softmax_scale": case.scale}
        if case.window != (-1, -1):
            self.options["window_size"] = case.window
        if case.softcap:
            self.options["softcap"] = case.softcap
        if case.alibi:
            slopes = alibi_slopes(case.heads, device)
            self.options["alibi_slopes"] = slopes if case.forward_only else slopes.repeat(len(case.queries), 1)
        if case.dropout:
            self.options["dropout_p"] = DROPOUT

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor | None]:
        batch = [tensor.unflatten(0, (len(self.case.queries), -1)) for tensor in (queries, keys, values)]
        if self.case.far:
            batch[0] = _far_apart(batch[0])
        tensors = [lay_out(*pair) for pair in zip(batch, self.case.layouts, strict=False)]
        output, sums = self.call(*tensors)
        return output.flatten(0, 1), None if sums is None else self._by_head(sums, tuple(batch[0].shape[:2]))

    def call(self, *tensors: Tensor) -> tuple[Tensor, Tensor | None]:
        function = getattr(self.package, self.name)
        if not self.case.sums:
            return function(*tensors, **self.options), None
        return tuple(function(*tensors, **self.options, return_attn_probs=True)[:2])

    def integers(self, numbers: Iterable[int]) -> Tensor:
        return torch.tensor(list(numbers), dtype=torch.int32, device=self.device)

    def _by_head(self, sums: Tensor, shape: tuple[int, ...]) -> Tensor:
        batch, length = shape
        _require_shape(sums, (batch, self.case.heads, length))
        return sums.transpose(0, 1).flatten(1)


class _PackedCall(_Call):
    """A call of flash_attn_varlen_func."""

    name = "flash_attn_varlen_func"

    def __call__(self, *rows: Tensor) -> tuple[Tensor, Tensor | None]:
        lengths = (self.case.queries, self.case.keys)
        starts = (self.integers(accumulate(each, initial=0)) for each in lengths)
        if self.case.pages:
            unused = -rows[1].shape[0] % PAGE
            paged = (torch.nn.functional.pad(each, (0, 0, 0, 0, 0, unused), value=torch.nan) for each in rows[1:])
            rows = (rows[0], *(each.unflatten(0, (-1, PAGE)).flip(0) for each in paged))
            self.options["block_table"] = self.integers(reversed(range(len(rows[1]))))[None]
        output, sums = self.call(*rows, *starts, *map(max, lengths))
        if sums is not None:
            _require_shape(sums, (self.case.heads, sum(self.case.queries)))
        return output, sums


class _CachedCall(_Call):
    """A call of flash_attn_with_kvcache."""

    name = "flash_attn_with_kvcache"

    def call(self, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor | None]:
        case, options = self.case, dict(self.options)
        old = [length - case.appended for length in case.keys]
        new, lengths = self._take_new(old, keys, values), self.integers(old)
        if case.lengths:
            options["cache_seqlens"] = lengths
        if case.padding:
            options["cache_leftpad"] = self.integers([case.padding] * len(old))
            keys[:, : case.padding], values[:, : case.padding] = torch.nan, torch.nan
        if case.rotary:
            options["rotary_cos"], options["rotary_sin"] = rotary_table(case.cache, case.dim, keys.dtype, self.device)
        cache = keys, values
        if case.pages:
            cache = tuple(tensor.unflatten(1, (-1, PAGE)).flatten(0, 1) for tensor in cache)
        if case.pages or case.reordered:
            cache = tuple(tensor.flip(0) for tensor in cache)
            order = self.integers(reversed(range(len(cache[0]))))
            options |= {"block_table": order.view(len(old), -1)} if case.pages else {"cache_batch_idx": order}
        found = self.package.flash_attn_with_kvcache(queries, *cache, **new, **options, return_softmax_lse=case.sums)
        if case.pages or case.reordered:
            cache = tuple(tensor.flip(0).view(keys.shape) for tensor in cache)
        if new and not self._holds(cache, old, new):
            raise ValueError("the appended keys and values are not in the cache")
        if lengths.tolist() != old:
            raise ValueError("the call changed cache_seqlens")
        return tuple(found) if case.sums else (found, None)

    def _take_new(self, old: list[int], keys: Tensor, values: Tensor) -> dict[str, Tensor]:
        """Return the keys and values to append; the rows of the cache for them, and later ones, become NaN."""
        count, appended = len(old), self.case.appended
        new = {}
        if appended:
            rows = [torch.arange(first, first + appended) % self.case.cache for first in old]
            for name, cache in (("k", keys), ("v", values)):
                new[name] = torch.stack([cache[number, rows[number]] for number in range(count)])
        for number, first in enumerate(old):
            keys[number, first:], values[number, first:] = torch.nan, torch.nan
        return new

    def _holds(self, cache: tuple[Tensor, ...], old: list[int], new: dict[str, Tensor]) -> bool:
        """Whether a cache holds the appended keys, unless they are rotated or lie after its end, and the values."""
        for tensor, name in zip(cache, new, strict=True):
            for number, first in enumerate(old):
                rows = tensor[number, first : first + self.case.appended]
                rotated = name == "k" and self.case.rotary
                if not rotated and not torch.equal(rows, new[name][number, : len(rows)]):
                    return False
        return True


def _far_apart(tensor: Tensor) -> Tensor:
    """Return a copy whose sequences are further apart than 32-bit offsets reach; memory between them is not used."""
    size = tensor[0].numel()
    storage = torch.UntypedStorage((FAR + size) * tensor.element_size(), device=tensor.device)
    far = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
    return far.as_strided(tensor.shape, (FAR, *tensor.stride()[1:])).copy_(tensor)


def _require_shape(sums: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(sums.shape) != shape:
        raise ValueError(f"the log-sum-exp has the shape {tuple(sums.shape)} instead of {shape}")
