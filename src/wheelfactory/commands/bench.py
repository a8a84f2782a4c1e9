"""`wheelfactory bench`: the benchmarks, each a command of its own, and `bench trend`, which compares their reports."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands import bench_attention, bench_training
from wheelfactory.commands.bench_options import add_plot, read_plot_paths
from wheelfactory.commands.options import Environ, print_text
from wheelfactory.core.errors import DONE
from wheelfactory.gpu.bench.bench_text import trend_text
from wheelfactory.gpu.bench.compare import trend_points
from wheelfactory.gpu.bench.plot import plot_trend
from wheelfactory.gpu.bench.reports import read_training_report


def _add_trend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reports",
        nargs="+",
        type=Path,
        metavar="REPORT",
        help="reports written by `bench training --output-json`, in any order",
    )
    add_plot(parser, "the median step time against the date")


def _execute_trend(options: argparse.Namespace, _environ: Environ) -> int:
    """Print the table and draw the plot."""
    plots = read_plot_paths(options)
    reports = {str(path): read_training_report(path) for path in options.reports}
    points = trend_points(reports)
    print_text(*trend_text(points))
    plot_trend(points, next(iter(reports.values())), plots)
    return DONE


BENCHMARKS = {
    "attention": (*(bench_attention.add, bench_attention.execute), "time attention over a sweep of sequence lengths"),
    "training": (
        *(bench_training.add, bench_training.execute),
        "train a small transformer with each backend; optionally compare with an earlier report",
    ),
    "trend": (_add_trend, _execute_trend, "show how training speed changed over several reports"),
}
"""Benchmark name -> what adds its options, what executes it, and its summary."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add each benchmark as a subcommand with its options."""
    benchmarks = parser.add_subparsers(required=True, dest="benchmark", metavar="BENCHMARK")
    for name, (add_options, _, summary) in BENCHMARKS.items():
        add_options(benchmarks.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."))


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Run the named benchmark."""
    return BENCHMARKS[options.benchmark][1](options, environ)
