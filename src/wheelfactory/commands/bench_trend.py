"""`wheelfactory bench trend`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.bench_options import add_plot, plots_of
from wheelfactory.commands.options import Environ, show
from wheelfactory.core.errors import DONE
from wheelfactory.gpu.bench.compare import trend
from wheelfactory.gpu.bench.describe import trend_lines
from wheelfactory.gpu.bench.plot import plot_trend
from wheelfactory.gpu.bench.reports import read_training


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "reports",
        nargs="+",
        type=Path,
        metavar="REPORT",
        help="of `bench training --output-json`, in any order",
    )
    add_plot(parser, "the median step over time")


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print the table and draw the plot."""
    plots = plots_of(options)
    reports = {str(path): read_training(path) for path in options.reports}
    points = trend(reports)
    show(*trend_lines(points))
    plot_trend(points, next(iter(reports.values())), plots)
    return DONE
