"""What repeated timings say: their middle, their spread, and the arithmetic done in that time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from wheelfactory.gpu.bench.reports import AttentionConfig, AttentionRow

NOISE_LIMIT = 0.2
"""The largest spread with which a time is compared with another. A choice: 17.8, 1.1 and 20.2 ms of one call on a busy
CPU once gave a speed-up of 61.82."""


def median(numbers: Sequence[float]) -> float | None:
    """The median; None for an empty sequence."""
    return statistics.median(numbers) if numbers else None


def percentiles(numbers: Sequence[float]) -> tuple[float | None, float | None]:
    """The 10th and the 90th percentile, interpolated; None for an empty sequence."""
    if len(numbers) < 2:
        return median(numbers), median(numbers)
    tenths = statistics.quantiles(numbers, n=10, method="inclusive")
    return tenths[0], tenths[-1]


def spread(row: AttentionRow) -> float | None:
    """How far p10 and p90 are apart, as a share of the median; None if that is unknown."""
    if row.p10_ms is None or row.p90_ms is None or not row.ms:
        return None
    return (row.p90_ms - row.p10_ms) / row.ms


def is_steady(row: AttentionRow) -> bool:
    """Whether the time of a row may be compared with another: its spread is known and within `NOISE_LIMIT`."""
    found = spread(row)
    return found is not None and found <= NOISE_LIMIT


def attention_tflops(config: AttentionConfig, pairs: float | None, ms: float | None) -> float | None:
    """TFLOP/s of a call that took `ms` milliseconds; None without a time or without `pairs`.

    `pairs` are the pairs of a query and a visible key in all sequences; half of all if causal. Counted as flash-attn's
    own benchmarks do: two products of the forward pass, and five more for the backward pass.
    """
    if not ms or not pairs:
        return None
    forward = 4 * config.heads * config.head_dim * pairs
    return forward * (3.5 if config.backward else 1) / (ms * 1e9)
