"""The options of a call of attention, and the values of each preset.

The factory imports this module too, so it needs no torch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Tensor = Any

WINDOW = 256
"""Preset ``window``: visible keys before each query, and after it unless causal."""
SOFTCAP = 30.0
"""Preset ``softcap``: the limit of a score, as in Grok-1."""
SHORTEST = 64
"""Preset ``varlen``: the shortest sequence has at least 1 / `SHORTEST` of the longest one's length."""


class NotRunError(Exception):
    """This implementation or option is not available here; the message says why."""


# eq=False: hashed by identity, because tensors cannot be compared
@dataclass(frozen=True, eq=False)
class CallOptions:
    """What a call asks for beside its tensors, named as flash-attn's arguments."""

    causal: bool
    window: tuple[int, int] = (-1, -1)
    """Visible keys before and after each query; -1: all."""
    softcap: float = 0.0
    """0: none."""
    slopes: Tensor | None = None
    """ALiBi slopes, (heads,), float32."""
    deterministic: bool = False
    """Whether the gradients must have the same bits each time."""
    starts: Tensor | None = None
    """The first token of each packed sequence, and the number of all tokens, int32; None unless packed."""
    lengths: tuple[int, ...] = ()
    """Tokens of each packed sequence."""

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """The largest distance of a visible key before and after its query; None: no limit."""
        before, after = (None if size < 0 else size for size in self.window)
        return before, 0 if self.causal else after


def draw_lengths(longest: int, count: int) -> tuple[int, ...]:
    """The lengths of `count` sequences, the same each time: the longest, and others down to 1 / `SHORTEST` of it."""
    numbers = random.Random(longest)  # noqa: S311 # sizes, not secrets
    shortest = -(-longest // SHORTEST)
    return (longest, *(numbers.randint(shortest, longest) for _ in range(count - 1)))


def visible_pairs(options: CallOptions, lengths: Sequence[int]) -> float:
    """Pairs of a query and a key that it sees, in sequences of these lengths.

    Without a window, causal pairs count as half of all, as in flash-attn's own benchmarks.
    """
    if options.window == (-1, -1):
        return sum(length * length for length in lengths) * (0.5 if options.causal else 1)
    before, after = options.limits
    pairs = 0
    for length in lengths:
        left, right = length if before is None else before, length if after is None else after
        pairs += sum(min(query + right, length - 1) - max(query - left, 0) + 1 for query in range(length))
    return pairs
