"""Figures that follow from what was measured: medians, and how implementations compare with each other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from wheelfactory.gpu.bench.reports import AttentionRow, Summary, TrainingResult


def median(numbers: Sequence[float]) -> float | None:
    """The one in the middle, or halfway between the two there; None of none."""
    return statistics.median(numbers) if numbers else None


def ratio(one: float | None, other: float | None) -> float | None:
    """`one` in units of `other`; None where one is not known or the other is nothing."""
    return one / other if one is not None and other else None


def with_ratios(rows: Sequence[AttentionRow]) -> tuple[AttentionRow, ...]:
    """The rows, each compared with the one of ``plain`` at its length."""
    plain = {row.seqlen: row for row in rows if row.implementation == "plain"}

    def compared(row: AttentionRow) -> AttentionRow:
        beside = plain.get(row.seqlen)
        if beside is None:
            return row
        ratios = {"speedup": ratio(beside.ms, row.ms), "memory_ratio": ratio(beside.extra_mib, row.extra_mib)}
        return row.model_copy(update=ratios)

    return tuple(map(compared, rows))


def summarize(results: Sequence[TrainingResult]) -> Summary:
    """FA3 beside FA2."""
    named = {result.implementation.name: result for result in results}
    ck, triton = named.get("ck"), named.get("triton")
    if ck is None or triton is None:
        return Summary()
    both = ck.peak_mib is not None and triton.peak_mib is not None
    return Summary(
        fa3_speedup=ratio(ck.median_step_ms, triton.median_step_ms),
        fa3_memory_ratio=ratio(triton.peak_mib, ck.peak_mib),
        fa3_memory_delta_mib=(triton.peak_mib or 0) - (ck.peak_mib or 0) if both else None,
    )
