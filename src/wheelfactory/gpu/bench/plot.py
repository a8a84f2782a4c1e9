"""Draw benchmark reports as PNG or SVG, chosen by the file suffix. The same report gives the same SVG bytes.

matplotlib is imported only for drawing, because the import takes a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wheelfactory.core.errors import InputError
from wheelfactory.core.files import write_atomic
from wheelfactory.gpu.bench.bench_text import DISPLAY_NAMES, options_text
from wheelfactory.gpu.bench.compare import TrendPoint
from wheelfactory.gpu.bench.reports import AttentionReport, TrainingReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")

# colour, marker and dashes of each implementation: overlapping lines stay distinct, also for the colour-blind
_LINE_STYLES = {
    "flash-attn": ("#0072b2", "o", "-"),
    "triton": ("#0072b2", "o", "-"),
    "ck": ("#d55e00", "^", "--"),
    "fallback": ("#009e73", "s", "--"),
    "sdpa": ("#b8860b", "D", ":"),
    "flex": ("#cc79a7", "v", "-."),
    "varlen": ("#d55e00", "^", "--"),
    "plain": ("#56606a", "x", "-"),
}


def require_matplotlib() -> None:
    """Raises `InputError` if matplotlib is missing. Call it before measuring, which takes long."""
    if find_spec("matplotlib") is None:
        raise InputError("matplotlib is missing", sys.executable, f"{sys.executable} -m pip install matplotlib")


def plot_attention(report: AttentionReport, paths: Sequence[Path]) -> None:
    """Draw time, TFLOP/s and extra memory over the sequence length, one line per implementation, into each file.

    A band from p10 to p90 lies around each line of times.
    """
    if not paths:
        return
    config, panels = report.config, _panels(report)
    length = f"{'longest sequence' if config.preset == 'varlen' else 'sequence length'} (tokens)"
    title = (
        f"Attention on {report.hardware.text(report.cpu or 'CPU')}, {config.dtype}\n"
        f"batch {config.batch}, {config.heads} heads, head dim {config.head_dim}, {options_text(config)}"
    )
    measured = [field for field in panels if any(getattr(row, field) is not None for row in report.rows)]
    with _style():
        figure, every = _figure(title, report.dropped_launch_options, panels=max(len(measured), 1))
        for axes, field in zip(every, measured, strict=False):  # without measurements: one empty panel
            for name in [implementation.name for implementation in report.implementations]:
                rows = [row for row in report.rows if row.implementation == name]
                _line(axes, field, name, [(row.seqlen, found) for row in rows if (found := getattr(row, field))])
                if field == "ms":
                    _band(axes, name, [(row.seqlen, row.p10_ms, row.p90_ms) for row in rows if row.p10_ms])
            axes.set(xlabel=length, ylabel=panels[field], xscale="log", yscale="log")
            axes.set_xticks(sorted(config.seqlens), [str(seqlen) for seqlen in sorted(config.seqlens)], rotation=45)
            axes.xaxis.minorticks_off()
            axes.yaxis.set_major_formatter(lambda number, _place: f"{number:g}")
        _write(figure, every[0], paths)


def _panels(report: AttentionReport) -> dict[str, str]:
    """Field of a row -> the label of its panel."""
    counts = sorted({row.repetitions for row in report.rows if row.repetitions})
    repeated = " to ".join(str(count) for count in dict.fromkeys((*counts[:1], *counts[-1:])))
    more = f"\nmedian of {repeated}, band: p10 to p90" if repeated else ""
    return {"ms": f"time of a call (ms){more}", "tflops": "TFLOP/s", "extra_mib": "extra memory (MiB)"}


def plot_trend(points: Sequence[TrendPoint], report: TrainingReport, paths: Sequence[Path]) -> None:
    """Draw the median step over time, one line per implementation. `report` is any of the reports."""
    if not paths:
        return
    config = report.config
    title = (
        f"Training on {report.hardware.text('CPU')}, {config.dtype}\nbatch {config.batch_size}, "
        f"{config.seq_len} tokens, d_model {config.d_model}, {config.n_heads} heads, {config.n_layers} layers"
    )
    with _style():
        figure, (axes,) = _figure(title, report.dropped_launch_options, panels=1)
        for name in dict.fromkeys(point.name for point in points):
            _line(axes, "step", name, [(point.report.time, point.step_ms) for point in points if point.name == name])
        axes.set(xlabel="time of the report (UTC)", ylabel="median step (ms)")
        axes.set_ylim(bottom=0)
        if len({point.report.time for point in points}) == 1:  # matplotlib would show years around it
            only, half = points[0].report.time, timedelta(hours=12)
            axes.set(xlim=(only - half, only + half))
        _write(figure, axes, paths)


def _style() -> AbstractContextManager[None]:
    import matplotlib as mpl

    return mpl.rc_context(fname=Path(__file__).with_name("plot.mplstyle"))


def _figure(title: str, dropped: tuple[str, ...] | None, *, panels: int) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=({1: 8, 2: 11}.get(panels, 15), 4.5))
    axes = figure.subplots(1, panels, squeeze=False)
    figure.suptitle(title if dropped is None else f"{title}; test mode: non-AMD GPU", fontsize="medium")
    return figure, list(axes[0])


def _line(axes: Axes, panel: str, name: str, points: Sequence[tuple[Any, float]]) -> None:
    if points:
        style: dict[str, Any] = dict(zip(("color", "marker", "linestyle"), _LINE_STYLES[name], strict=True))
        label, gid = DISPLAY_NAMES.get(name, name), f"{panel}-{name}"
        axes.plot(*zip(*points, strict=True), markerfacecolor="none", label=label, gid=gid, **style)


def _band(axes: Axes, name: str, points: Sequence[tuple[float, float | None, float | None]]) -> None:
    if points:
        lengths, low, high = zip(*points, strict=True)
        colour, _, _ = _LINE_STYLES[name]
        axes.fill_between(lengths, low, high, color=colour, alpha=0.2, linewidth=0, gid=f"band-{name}")


def _write(figure: Figure, axes: Axes, paths: Sequence[Path]) -> None:
    if axes.lines:
        axes.legend()
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # each drawing moves the parts further: bytes would depend on the file before
    for path in paths:
        image = BytesIO()
        kind = path.suffix[1:]
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(image, format=kind, dpi=150, metadata=metadata)
        write_atomic(path, image.getvalue())
