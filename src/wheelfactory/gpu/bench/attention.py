"""A sweep to measure in, its report out: each implementation in a process of its own, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wheelfactory.gpu.bench.measuring import NO_REPORT, Step, circumstances, hear
from wheelfactory.gpu.bench.ratios import median, with_ratios
from wheelfactory.gpu.bench.reports import AttentionConfig, AttentionReport, AttentionRow, Implementation
from wheelfactory.gpu.torch_python import TorchPython

IMPLEMENTATIONS = ("flash-attn", "fallback", "sdpa", "plain")
"""What can be measured; ``plain`` is the textbook, which the ratios compare with."""

SEQLENS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def measure_attention(
    config: AttentionConfig,
    implementations: Sequence[str],
    python: TorchPython,
    environ: Mapping[str, str],
    step: Step,
) -> AttentionReport:
    """Run the sweep in that Python, with the environment as it is: its variables select flash-attn's backend."""
    heard: list[tuple[Implementation, tuple[AttentionRow, ...]]] = []
    dropped: set[str] = set()
    for name in implementations:
        with step(name):
            said, ended = hear("attention.py", name, config.model_dump(mode="json"), python, environ)
        heard.append((implementation_of(name, said), tuple(rows_of(name, said, ended, config.seqlens))))
        dropped.update(said.get("dropped") or ())
    return AttentionReport(
        **circumstances(python),
        dropped_launch_options=tuple(sorted(dropped)) if config.foreign_gpu else None,
        config=config,
        implementations=tuple(implementation for implementation, _ in heard),
        rows=with_ratios([row for _, rows in heard for row in rows]),
    )


def implementation_of(name: str, said: Mapping[str, Any]) -> Implementation:
    """What a program says of the implementation that it measured."""
    symbols = [row["symbol"] for row in said.get("rows", ()) if row.get("symbol")]
    return Implementation(
        name=name, version=said.get("version"), origin=said.get("origin"), symbol=symbols[0] if symbols else None
    )


def rows_of(name: str, said: Mapping[str, Any], ended: str, seqlens: Sequence[int]) -> Iterator[AttentionRow]:
    """A row for each length: what the program said of it, else why it says nothing."""
    by_length = {row["seqlen"]: row for row in said.get("rows", ())}
    for seqlen in seqlens:
        row = by_length.get(seqlen)
        if row is None:
            status, why = said.get("status") or "failed", ended or said.get("reason") or NO_REPORT
            yield AttentionRow(implementation=name, seqlen=seqlen, status=status, reason=why)
            continue
        yield AttentionRow(
            implementation=name,
            seqlen=seqlen,
            status=row["status"],
            reason=row.get("reason", ""),
            ms=median(row.get("times_ms", ())),
            extra_mib=row.get("extra_mib"),
            difference=row.get("difference"),
        )
