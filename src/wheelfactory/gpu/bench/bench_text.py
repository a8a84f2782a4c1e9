"""Benchmark reports as sentences and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wheelfactory.core.label import name_aiter
from wheelfactory.core.terminal import TextColumn, TextTable
from wheelfactory.gpu.bench.compare import FigureChange, TrendPoint
from wheelfactory.gpu.bench.programs.call_options import SHORTEST, SOFTCAP, WINDOW
from wheelfactory.gpu.bench.reports import (
    NOISE_LIMIT,
    AttentionConfig,
    AttentionReport,
    AttentionRow,
    MeasuredImplementation,
    TrainingReport,
    spread,
)
from wheelfactory.gpu.validation_report import Hardware, Software

DISPLAY_NAMES = {"ck": "FA2 (ck)", "triton": "FA3 (triton)"}
"""Names shown for the implementations of a training; others are shown as they are."""

_PRESETS = {
    "window": f"window of {WINDOW} keys",
    "softcap": f"softcap {SOFTCAP:g}",
    "alibi": "ALiBi",
    "deterministic": "deterministic gradients",
    "varlen": f"packed sequences of 1/{SHORTEST} of the length to the length",
}

_FIGURES = {
    "median_step_ms": "median step ms",
    "steps_per_s": "steps/s",
    "tokens_per_s": "tokens/s",
    "peak_mib": "peak MiB",
    "loss_first": "first loss",
    "loss_last": "last loss",
}
"""The figures of a training, a field of `TrainingResult` each, and their titles."""


def attention_text(report: AttentionReport) -> Iterator[str | TextTable]:
    """The hardware, the configuration, the table, the reason for each missing measurement, and a warning of noise."""
    config = report.config
    yield from _environment_lines(report.hardware, report.software, report.dropped_launch_options, report.cpu)
    heads = f"{config.heads} heads" + (f" ({config.kv_heads} key heads)" if config.kv_heads != config.heads else "")
    yield f"batch {config.batch}, {heads}, head dim {config.head_dim}, {config.dtype}, {options_text(config)}"
    yield from _implementation_lines(report.implementations)
    yield ""
    yield _table(*_measured_columns(report), left=(1,), key_columns=2)
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for row in report.rows:
        if row.reason:
            reasons.setdefault((row.implementation, row.status, row.reason), []).append(str(row.seqlen))
    for (name, status, reason), lengths in reasons.items():
        yield f"{name}, {', '.join(lengths)} tokens: {status}: {reason}"
    yield from _noise_lines(report.rows)


def options_text(config: AttentionConfig) -> str:
    """What a call of a sweep computes, without its sizes."""
    passes = "forward and backward" if config.backward else "forward"
    preset = [_PRESETS[config.preset]] if config.preset else []
    return ", ".join([*preset, "causal" if config.causal else "not causal", passes])


def _measured_columns(report: AttentionReport) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table, without the columns in which nothing was measured."""
    columns: dict[str, list[str]] = {}
    for row in sorted(report.rows, key=lambda row: row.seqlen):
        cells = {
            "tokens": str(row.seqlen),
            "implementation": row.implementation,
            "TFLOP/s": _number(row.tflops),
            "median ms": _number(row.ms) if row.status == "measured" else row.status,
            "p10 ms": _number(row.p10_ms),
            "p90 ms": _number(row.p90_ms),
            "repetitions": _number(row.repetitions),
            "extra MiB": _number(row.extra_mib),
            "difference": "-" if row.difference is None else f"{row.difference:.1e}",
            "faster than plain": _times(row.speedup),
            "memory of plain": _times(row.memory_ratio),
        }
        for name, cell in cells.items():
            columns.setdefault(name, []).append(cell)
    shown = {name: cells for name, cells in columns.items() if set(cells) != {"-"}}
    return list(shown), [list(cells) for cells in zip(*shown.values(), strict=True)]


def _noise_lines(rows: Sequence[AttentionRow]) -> Iterator[str]:
    """A warning for each implementation with times that are not steady."""
    noisy: dict[str, list[str]] = {}
    for row in rows:
        found = spread(row)
        if found is not None and found > NOISE_LIMIT:
            noisy.setdefault(row.implementation, []).append(f"{row.seqlen} ({found * 100:.0f} %)")
    for name, lengths in noisy.items():
        yield (
            f"warning: times of {name} vary by more than {NOISE_LIMIT * 100:.0f} % at {', '.join(lengths)} tokens, "
            "p10 to p90 over the median: no ratio to plain is given there"
        )


def training_text(report: TrainingReport) -> Iterator[str | TextTable]:
    """The hardware, the model, the table, the reason for each missing measurement, and FA3 compared with FA2."""
    config = report.config
    yield from _environment_lines(report.hardware, report.software, report.dropped_launch_options)
    yield (
        f"{f'preset {report.preset}: ' if report.preset else ''}batch {config.batch_size}, {config.seq_len} tokens, "
        f"d_model {config.d_model}, {config.n_heads} heads, {config.n_layers} layers, {config.dtype}; "
        f"{config.timed_steps} steps timed after {config.warmup_steps}{', autotuned' if config.autotune else ''}"
    )
    yield from _implementation_lines([result.implementation for result in report.results])
    yield ""
    rows = []
    for result in report.results:
        first, *others = (_number(getattr(result, field)) for field in _FIGURES)
        shown = first if result.status == "measured" else result.status
        rows.append((_name(result.implementation.name), shown, *others))
    yield _table(("implementation", *_FIGURES.values()), rows, left=(0,))
    for result in report.results:
        if result.reason:
            yield f"{_name(result.implementation.name)}: {result.status}: {result.reason}"
    summary, memory = report.summary, ""
    if {result.implementation.name for result in report.results} & {summary.fa2, summary.fa3}:
        yield "FA2 is flash-attn's CK backend. On ROCm, FA3 means its Triton backend."
    if summary.fa3_speedup is None:
        return
    if summary.fa3_memory_delta_mib is not None:
        more = "more" if summary.fa3_memory_delta_mib > 0 else "less"
        memory = f", with {_number(abs(summary.fa3_memory_delta_mib))} MiB {more} at its peak"
    yield f"FA3 is {summary.fa3_speedup:.2f} times as fast as FA2{memory}."


def change_text(name: str, changes: Sequence[FigureChange], threshold: float) -> Iterator[str | TextTable]:
    """The table of a comparison with the report called `name`, and the number of regressions."""
    yield f"compared with {name}:"
    rows = [
        (
            _name(change.implementation),
            _FIGURES.get(change.figure, change.figure),
            _number(change.before),
            _number(change.now),
            "-" if change.percent is None else f"{change.percent:+.1f} %",
            "worse" if change.is_worse else "",
        )
        for change in changes
    ]
    yield _table(("implementation", "figure", "before", "now", "change", ""), rows, left=(0, 1, 5), key_columns=2)
    worse = sum(change.is_worse for change in changes)
    yield f"{worse} worse" if worse else f"nothing is worse by more than {threshold:g} %"


def trend_text(points: Sequence[TrendPoint]) -> Iterator[str | TextTable]:
    """The table of a trend."""
    header = ("time", "torch", "implementation", "version", "median step ms", "tokens/s", "peak MiB", "change")
    rows = [
        (
            f"{point.report.time:%Y-%m-%d %H:%M}",
            point.report.software.torch,
            _name(point.name),
            point.result.implementation.version or "-",
            *map(_number, (point.step_ms, point.result.tokens_per_s, point.result.peak_mib)),
            "-" if point.percent is None else f"{point.percent:+.1f} %",
        )
        for point in points
    ]
    yield _table(header, rows, left=(0, 1, 2, 3), key_columns=3)


def _environment_lines(
    hardware: Hardware, software: Software, dropped: tuple[str, ...] | None, cpu: str | None = None
) -> Iterator[str]:
    processor = f"CPU {cpu}" if cpu else "CPU"
    devices = [hardware.text(processor), *([processor] if cpu and hardware.device else [])]
    yield ", ".join([*devices, f"torch {software.torch}", *software.built_with, f"Python {software.python}"])
    if dropped is not None:
        options = ", ".join(dropped) or "none"
        yield f"test mode for non-AMD GPUs (dropped launch options: {options}): not evidence for AMD GPUs"


def _implementation_lines(implementations: Sequence[MeasuredImplementation]) -> Iterator[str]:
    for found in implementations:
        if found.origin:  # without one it was not loaded; the rows give the reason
            kernels = found.aiter and f"of {name_aiter(found.aiter)}"
            facts = [found.version, found.origin, found.symbol and f"calls {found.symbol}", kernels]
            yield f"{_name(found.name)}: {', '.join(part for part in facts if part)}"


def _name(name: str) -> str:
    return DISPLAY_NAMES.get(name, name)


def _number(number: float | str | None) -> str:
    """Four significant digits, or all digits before the point; a status unchanged."""
    if number is None or isinstance(number, str):
        return number or "-"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def _times(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f} x" if number < 100 else f"{number:.0f} x"


def _table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int], key_columns: int = 1
) -> TextTable:
    """A table with numbers; the columns in `left` have texts."""
    columns = (TextColumn(title, is_number=place not in left) for place, title in enumerate(header))
    return TextTable(tuple(columns), tuple(map(tuple, rows)), key_columns=key_columns)
