"""`wheelfactory bench`: the benchmarks, each a command of its own."""

from __future__ import annotations

import argparse

from wheelfactory.commands import bench_attention, bench_training, bench_trend
from wheelfactory.commands.options import Environ

BENCHMARKS = {
    "attention": (bench_attention, "time attention over a sweep of sequence lengths"),
    "training": (
        bench_training,
        "train a small transformer with each backend; optionally compare with an earlier report",
    ),
    "trend": (bench_trend, "show how training speed changed over several reports"),
}
"""Benchmark name -> its module and its summary."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add each benchmark as a subcommand with its options."""
    benchmarks = parser.add_subparsers(required=True, dest="benchmark", metavar="BENCHMARK")
    for name, (module, summary) in BENCHMARKS.items():
        module.add(benchmarks.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."))


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Run the named benchmark."""
    module, _ = BENCHMARKS[options.benchmark]
    code: int = module.execute(options, environ)
    return code
