"""Rule: which keys a query sees, and the bias between the two."""

from __future__ import annotations

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

    def seen(self, first: int, last: int) -> tuple[int, int]:
        """The range of keys (end excluded) that at least one query of a range (end excluded) may see."""
        start = 0 if self.left is None else min(max(0, first + self.shift - self.left), self.keys)
        end = self.keys if self.right is None else max(0, min(self.keys, last + self.shift + self.right))
        return start, max(start, end)

    def hidden(self, rows: tuple[int, int], columns: tuple[int, int], device: torch.device) -> Tensor | None:
        """Where a range of queries does not see a range of keys, as bool (queries, keys); None if it sees all."""
        (first, last), (start, end) = rows, columns
        hidden = None
        if self.left is not None and start < last - 1 + self.shift - self.left:
            hidden = self.distance(rows, columns, device) < -self.left
        if self.right is not None and end - 1 > first + self.shift + self.right:
            after = self.distance(rows, columns, device) > self.right
            hidden = after if hidden is None else hidden | after
        return hidden

    def distance(self, rows: tuple[int, int], columns: tuple[int, int], device: torch.device) -> Tensor:
        """How far each key lies behind the one opposite of the query, as int64 (queries, keys)."""
        opposite = torch.arange(*rows, device=device) + self.shift
        return torch.arange(*columns, device=device) - opposite[:, None]


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


def alibi_bias(slopes: Tensor, distance: Tensor) -> Tensor:
    """-slope |distance|: (batch or 1, heads, 1, 1) and (queries, keys) to (batch or 1, heads, queries, keys)."""
    return distance.abs().to(slopes.dtype) * -slopes
