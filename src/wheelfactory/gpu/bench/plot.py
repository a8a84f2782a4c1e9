"""Reports of benchmarks -> plots, as PNG or SVG by the name of the file; the same report gives the same bytes of SVG.

matplotlib is imported only when something is drawn: it takes a second, and nothing else needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import write_atomic
from wheelfactory.gpu.bench.bench_text import DISPLAY_NAMES
from wheelfactory.gpu.bench.compare import TrendPoint
from wheelfactory.gpu.bench.reports import AttentionReport, TrainingReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")

_LOOKS = {
    "flash-attn": ("#0072b2", "o", "-"),
    "triton": ("#0072b2", "o", "-"),
    "ck": ("#d55e00", "^", "--"),
    "fallback": ("#009e73", "s", "--"),
    "sdpa": ("#b8860b", "D", ":"),
    "plain": ("#56606a", "x", "-"),
}
"""Colour, mark and dashes of each implementation, so that lines upon each other, and for the colour-blind, differ."""


def require_matplotlib() -> None:
    """Raises `InputError` if plots cannot be drawn; asked before anything is measured."""
    if find_spec("matplotlib") is None:
        raise InputError(
            "no matplotlib to draw a plot with", sys.executable, f"{sys.executable} -m pip install matplotlib"
        )


def plot_attention(report: AttentionReport, paths: Sequence[Path]) -> None:
    """Time and extra memory over the sequence length, a line for each implementation, into each of the files."""
    if not paths:
        return
    config = report.config
    passes = "forward and backward" if config.backward else "forward"
    title = (
        f"Attention on {report.hardware.text('CPU')}, {config.dtype}\nbatch {config.batch}, {config.heads} heads, "
        f"head dim {config.head_dim}, {'causal' if config.causal else 'not causal'}, {passes}"
    )
    panels = {"ms": "time of a call (ms)", "extra_mib": "extra memory (MiB)"}
    measured = [field for field in panels if any(getattr(row, field) is not None for row in report.rows)]
    with _style():
        figure, every = _figure(title, report.dropped_launch_options, panels=max(len(measured), 1))
        for axes, field in zip(every, measured, strict=False):  # one panel without lines if nothing is measured
            for name in [implementation.name for implementation in report.implementations]:
                rows = [row for row in report.rows if row.implementation == name]
                _line(axes, field, name, [(row.seqlen, found) for row in rows if (found := getattr(row, field))])
            axes.set(xlabel="sequence length (tokens)", ylabel=panels[field], xscale="log", yscale="log")
            axes.set_xticks(sorted(config.seqlens), [str(seqlen) for seqlen in sorted(config.seqlens)], rotation=45)
            axes.xaxis.minorticks_off()
            axes.yaxis.set_major_formatter(lambda number, _place: f"{number:g}")
        _write(figure, every[0], paths)


def plot_trend(points: Sequence[TrendPoint], report: TrainingReport, paths: Sequence[Path]) -> None:
    """The median step over the time of the reports, a line for each implementation; `report` is any of them."""
    if not paths:
        return
    config = report.config
    title = (
        f"Training on {report.hardware.text('CPU')}, {config.dtype}\nbatch {config.batch_size}, "
        f"{config.seq_len} tokens, d_model {config.d_model}, {config.n_heads} heads, {config.n_layers} layers"
    )
    with _style():
        figure, (axes,) = _figure(title, report.dropped_launch_options, panels=1)
        for name in dict.fromkeys(point.implementation for point in points):
            _line(axes, "step", name, [(point.time, point.step_ms) for point in points if point.implementation == name])
        axes.set(xlabel="time of the report (UTC)", ylabel="median step (ms)")
        axes.set_ylim(bottom=0)
        _write(figure, axes, paths)


def _style() -> AbstractContextManager[None]:
    import matplotlib as mpl

    return mpl.rc_context(
        {
            "svg.fonttype": "none",  # text stays text: it can be read out, searched and selected
            "svg.hashsalt": "wheelfactory",
            "font.family": "sans-serif",
            "date.converter": "concise",
            "axes.grid": True,
            "grid.alpha": 0.3,
            "figure.constrained_layout.use": True,
        }
    )


def _figure(title: str, dropped: tuple[str, ...] | None, *, panels: int) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11 if panels > 1 else 8, 4.5))
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False)
    figure.suptitle(title if dropped is None else f"{title}; test mode: foreign GPU", fontsize="medium")
    return figure, list(axes[0])


def _line(axes: Axes, panel: str, name: str, points: Sequence[tuple[Any, float]]) -> None:
    if points:
        colour, marker, dashes = _LOOKS[name]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=colour,
            marker=marker,
            markerfacecolor="none",
            linestyle=dashes,
            label=DISPLAY_NAMES.get(name, name),
            gid=f"{panel}-{name}",
        )


def _write(figure: Figure, axes: Axes, paths: Sequence[Path]) -> None:
    if axes.lines:
        axes.legend()
    for path in paths:
        made = BytesIO()
        kind = path.suffix[1:]
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(made, format=kind, dpi=150, metadata=metadata)
        write_atomic(path, made.getvalue())
