"""`wheelfactory bench trend`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.bench.options import add_plot, read_plot_paths
from wheelfactory.commands.options import Environ, print_text
from wheelfactory.core.errors import DONE
from wheelfactory.gpu.bench.bench_text import trend_text
from wheelfactory.gpu.bench.compare import trend_points
from wheelfactory.gpu.bench.plot import plot_trend
from wheelfactory.gpu.bench.reports import read_training_report


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    what = "reports written by `bench training --output-json`, in any order"
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help=what)
    add_plot(parser, "the median step time against the date")


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print the table and draw the plot."""
    plots = read_plot_paths(options)
    reports = {str(path): read_training_report(path) for path in options.reports}
    points = trend_points(reports)
    print_text(*trend_text(points))
    plot_trend(points, next(iter(reports.values())), plots)
    return DONE
