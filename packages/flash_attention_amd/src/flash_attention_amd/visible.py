"""Rule: which keys a query sees, and how far they are from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Band:
    """The keys that each query sees, counted from the key that stands opposite of it.

    The last query stands opposite of the last key: query i of n opposite of key i + m - n of m. This is how
    flash-attn has aligned causal masks and windows since version 2.1, "bottom-right".
    """

    queries: int
    keys: int
    left: int | None
    """How many keys before that key are seen; None: all."""
    right: int | None
    """How many after it."""

    @property
    def full(self) -> bool:
        """Whether each query sees all keys."""
        return self.left is None and self.right is None

    @property
    def causal(self) -> bool:
        """Whether each query sees that key and all before it, and nothing else hides any."""
        return self.left is None and self.right == 0

    @property
    def shift(self) -> int:
        """The number of the key opposite of the first query; negative if there are more queries than keys."""
        return self.keys - self.queries

    @property
    def blind(self) -> int:
        """How many queries see no key; these are the first."""
        if not self.keys:
            return self.queries
        return 0 if self.right is None else min(self.queries, max(0, -(self.shift + self.right)))

    def seen(self, first: int, last: int) -> tuple[int, int]:
        """The range of keys (end excluded) that at least one query of a range (end excluded) may see."""
        start = 0 if self.left is None else min(max(0, first + self.shift - self.left), self.keys)
        end = self.keys if self.right is None else max(0, min(self.keys, last + self.shift + self.right))
        return start, max(start, end)

    def hidden(
        self, rows: tuple[int, int], columns: tuple[int, int], device: torch.device
    ) -> Iterator[tuple[slice, Tensor]]:
        """Where a range of queries does not see a range of keys.

        Gives keys, counted from the first of the range, with bool (queries, these keys), True where one is not seen.
        """
        (first, last), (start, end) = rows, columns
        if self.right is not None:
            after = first + self.shift + self.right + 1  # the first query does not see this key, nor any behind it
            at = max(start, after)
            if at < end:
                every = torch.ones(last - first, end - at, dtype=torch.bool, device=device)
                yield slice(at - start, end - start), every.triu_(after - at)
        if self.left is not None:
            before = first + self.shift - self.left  # the first query sees this key, and none before it
            until = min(end, before + last - 1 - first)
            if start < until:
                every = torch.ones(last - first, until - start, dtype=torch.bool, device=device)
                yield slice(0, until - start), every.tril_(before - 1 - start)

    def distance(self, rows: tuple[int, int], columns: tuple[int, int], like: Tensor) -> Tensor:
        """How far each key is from the one opposite of the query: (queries, keys), in the dtype of `like`."""
        (first, last), (start, end) = rows, columns
        opposite = torch.arange(first + self.shift, last + self.shift, dtype=like.dtype, device=like.device)
        return (torch.arange(start, end, dtype=like.dtype, device=like.device) - opposite[:, None]).abs_()


def band(queries: int, keys: int, window: tuple[int, int], *, causal: bool) -> Band:
    """The band of a call, without limits that hide no key.

    `window` is flash-attn's `window_size`: keys to the left and to the right, -1 for all.
    """
    left, right = (int(size) for size in window)
    if causal:
        right = 0
    return Band(
        queries,
        keys,
        left if 0 <= left < keys - 1 else None,
        right if 0 <= right < queries - 1 else None,
    )
