"""Options that the benchmarks share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection
from pathlib import Path

from wheelfactory.gpu.bench.plot import SUFFIXES, require_matplotlib


def add_python(parser: argparse.ArgumentParser) -> None:
    """``--python PYTHON`` and ``--non-amd-gpu``"""
    parser.add_argument(
        "--python", metavar="PYTHON", help="the Python that measures, which has torch (default: the one you work with)"
    )
    parser.add_argument(
        "--non-amd-gpu",
        action="store_true",
        help="test mode: drop the launch options for AMD, so that Triton's kernels run on the GPU of another vendor",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """``--output-json FILE``"""
    parser.add_argument("--output-json", type=parse_output_path, metavar="FILE", help="write the report there, as JSON")


def add_plot(parser: argparse.ArgumentParser, what: str) -> None:
    """``--plot FILE``, of which there may be several"""
    parser.add_argument(
        "--plot",
        type=_plot_file,
        action="append",
        default=[],
        metavar="FILE",
        help=f"draw {what} into this .png or .svg; may be given twice, for both",
    )


def read_plot_paths(options: argparse.Namespace) -> list[Path]:
    """The plots that are asked for. Raises `InputError` if there are some, and nothing to draw them with."""
    paths: list[Path] = options.plot
    if paths:
        require_matplotlib()
    return paths


def parse_output_path(text: str) -> Path:
    """A file to write when all is measured, so that a name that cannot be one is refused before."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"it is a directory: {text!r}")
    there = next(parent for parent in path.absolute().parents if os.path.lexists(parent))  # what lacks is made
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise argparse.ArgumentTypeError(f"nothing can be written in {str(there)!r}: {text!r}")
    return path


def _plot_file(text: str) -> Path:
    if Path(text).suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"not the name of a {' or '.join(SUFFIXES)}: {text!r}")
    return parse_output_path(text)


def name_list(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """The type of an argument that lists some of the known names, each once."""

    def names(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(text.split(",")))
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"not one of {', '.join(known)}: {name!r}")
        return found

    return names
