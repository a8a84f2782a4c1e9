"""Which keys a query sees, and their distance from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Band(NamedTuple):  # made by each call: a dataclass takes twice the time
    """The keys that each query sees, relative to its aligned key.

    The last query is aligned with the last key: query i of n with key i + m - n of m. flash-attn calls this
    "bottom-right" and aligns causal masks and windows so since version 2.1.
    """

    queries: int
    keys: int
    left: int | None
    """The number of visible keys before the aligned key; None for all."""
    right: int | None
    """The number of visible keys after it; None for all."""

    @property
    def full(self) -> bool:
        """Whether each query sees all keys."""
        return self.left is None and self.right is None

    @property
    def causal(self) -> bool:
        """Whether each query sees exactly its aligned key and all keys before it."""
        return self.left is None and self.right == 0

    @property
    def shift(self) -> int:
        """The index of the first query's aligned key; negative if there are more queries than keys."""
        return self.keys - self.queries

    @property
    def blind(self) -> int:
        """The number of queries that see no key. They are the first ones."""
        if not self.keys:
            return self.queries
        return 0 if self.right is None else min(self.queries, max(0, -(self.shift + self.right)))

    def seen(self, first: int, last: int) -> tuple[int, int]:
        """The range of keys that any query of a range can see. Ends are exclusive."""
        start = 0 if self.left is None else min(max(0, first + self.shift - self.left), self.keys)
        end = self.keys if self.right is None else max(0, min(self.keys, last + self.shift + self.right))
        return start, max(start, end)

    def hidden(
        self, rows: tuple[int, int], columns: tuple[int, int], device: torch.device
    ) -> Iterator[tuple[slice, Tensor]]:
        """Where queries in `rows` do not see keys in `columns`.

        Yields slices of `columns`, each with a bool mask (queries, these keys) that is True for hidden keys.
        """
        (first, last), (start, end) = rows, columns
        if self.right is not None:
            after = first + self.shift + self.right + 1  # the first query sees neither this key nor any after it
            at = max(start, after)
            if at < end:
                every = torch.ones(last - first, end - at, dtype=torch.bool, device=device)
                yield slice(at - start, end - start), every.triu_(after - at)
        if self.left is not None:
            before = first + self.shift - self.left  # the first key that the first query sees
            until = min(end, before + last - 1 - first)
            if start < until:
                every = torch.ones(last - first, until - start, dtype=torch.bool, device=device)
                yield slice(0, until - start), every.tril_(before - 1 - start)

    def distance(self, rows: tuple[int, int], columns: tuple[int, int], like: Tensor) -> Tensor:
        """The distance of each key from the query's aligned key: (queries, keys), in the dtype of `like`."""
        (first, last), (start, end) = rows, columns
        opposite = torch.arange(first + self.shift, last + self.shift, dtype=like.dtype, device=like.device)
        return (torch.arange(start, end, dtype=like.dtype, device=like.device) - opposite[:, None]).abs_()


def band(queries: int, keys: int, window: tuple[int, int], *, causal: bool) -> Band:
    """The band of a call; limits that hide no key become None.

    `window` is flash-attn's `window_size`: keys to the left and to the right, -1 for all.
    """
    left, right = int(window[0]), 0 if causal else int(window[1])
    return Band(
        queries,
        keys,
        left if 0 <= left < keys - 1 else None,
        right if 0 <= right < queries - 1 else None,
    )
