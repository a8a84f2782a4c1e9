"""Fictitious reports of benchmarks, with figures chosen by tests."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from wheelfactory.gpu.bench.measure import summarize, with_ratios
from wheelfactory.gpu.bench.reports import (
    AttentionConfig,
    AttentionReport,
    AttentionRow,
    MeasuredImplementation,
    TrainingConfig,
    TrainingReport,
    TrainingResult,
)
from wheelfactory.gpu.validation_report import Hardware, Software

MI300X = Hardware(vendor="amd", device="AMD Instinct MI300X", arch="gfx942")
SOFTWARE = Software(python="3.12", torch="2.9.1+rocm6.4", hip="6.4", triton="3.5.1")
CONFIG = TrainingConfig(
    batch_size=4,
    seq_len=4096,
    d_model=1024,
    n_heads=16,
    n_layers=8,
    warmup_steps=20,
    timed_steps=80,
    dtype="bfloat16",
    autotune=False,
    foreign_gpu=False,
)


def trained(name: str, step_ms: float = 100.0, **other: Any) -> TrainingResult:
    """A training that was measured."""
    figures = {"steps_per_s": 1000 / step_ms, "tokens_per_s": 4 * 4096 * 1000 / step_ms, "peak_mib": 20000.0}
    figures |= {"loss_first": 7.1, "loss_last": 5.0}
    return TrainingResult(
        implementation=MeasuredImplementation(name=name, version="2.8.3", origin="installed"),
        status="measured",
        step_times_ms=(step_ms,),
        median_step_ms=step_ms,
        **{**figures, **other},
    )


def not_trained(name: str) -> TrainingResult:
    """One that could not be."""
    return TrainingResult(implementation=MeasuredImplementation(name=name), status="not run", reason="not installed")


def training_report(*results: TrainingResult, day: int = 20, **other: Any) -> TrainingReport:
    """A report of that day of November 2026."""
    return TrainingReport(
        **{
            "factory": "0.1.0",
            "time": datetime(2026, 11, day, 12, tzinfo=timezone.utc),
            "hardware": MI300X,
            "software": SOFTWARE,
            "preset": "mi300x",
            "config": CONFIG,
            "results": results,
            "summary": summarize(results),
            **other,
        }
    )


def attention_report(*rows: AttentionRow, **other: Any) -> AttentionReport:
    """A report with these rows."""
    return AttentionReport(
        **{
            "factory": "0.1.0",
            "time": datetime(2026, 11, 20, 12, tzinfo=timezone.utc),
            "hardware": MI300X,
            "software": SOFTWARE,
            "config": AttentionConfig(
                seqlens=tuple(dict.fromkeys(row.seqlen for row in rows)),
                batch=2,
                heads=8,
                kv_heads=8,
                head_dim=64,
                dtype="float16",
                causal=True,
                backward=False,
                foreign_gpu=False,
            ),
            "implementations": tuple(
                MeasuredImplementation(name=name, origin="torch")
                for name in dict.fromkeys(row.implementation for row in rows)
            ),
            "rows": with_ratios(rows),
            **other,
        }
    )


def timed(name: str, seqlen: int, ms: float, extra_mib: float | None = None, *, noise: float = 0.0) -> AttentionRow:
    """A row that was measured; p10 and p90 are `noise` of the median apart."""
    return AttentionRow(
        implementation=name,
        seqlen=seqlen,
        status="measured",
        ms=ms,
        p10_ms=ms * (1 - noise / 2),
        p90_ms=ms * (1 + noise / 2),
        repetitions=15,
        tflops=2 / ms,
        extra_mib=extra_mib,
        difference=0.001,
    )
