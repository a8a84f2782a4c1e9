"""`wheelfactory bench`: the benchmarks, each a command of its own."""

from __future__ import annotations

import argparse

from wheelfactory.commands import bench_attention, bench_training, bench_trend
from wheelfactory.commands.options import Environ

BENCHMARKS = {
    "attention": (bench_attention, "time attention over a sweep of sequence lengths"),
    "training": (bench_training, "train a small transformer with each backend, and compare with an earlier report"),
    "trend": (bench_trend, "say how the training of archived reports went from one to the next"),
}
"""Each benchmark, its module, and what it does."""


def add(parser: argparse.ArgumentParser) -> None:
    """The benchmarks with their options."""
    benchmarks = parser.add_subparsers(required=True, dest="benchmark", metavar="BENCHMARK")
    for name, (module, summary) in BENCHMARKS.items():
        module.add(benchmarks.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."))


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Run the benchmark that was named."""
    module, _ = BENCHMARKS[options.benchmark]
    code: int = module.execute(options, environ)
    return code
