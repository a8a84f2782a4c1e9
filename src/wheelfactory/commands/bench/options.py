"""Options shared by the benchmarks."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection
from pathlib import Path

from wheelfactory.commands.options import add_option
from wheelfactory.gpu.bench.plot import SUFFIXES, require_matplotlib


def add_python_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--python PYTHON`` and ``--non-amd-gpu``."""
    add_option(parser, "--python PYTHON", "benchmark the torch of this interpreter (default: the active environment)")
    what = "test mode: drop AMD launch options, so that Triton kernels run on another vendor's GPU"
    add_option(parser, "--non-amd-gpu", what)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--output-json FILE``."""
    add_option(parser, "--output-json FILE", "write the report as JSON", type=parse_output_path)


def add_plot(parser: argparse.ArgumentParser, plotted: str) -> None:
    """Add ``--plot FILE``, which can be repeated; `plotted` names the content for the help text."""
    what = f"plot {plotted} into FILE (.png or .svg); repeat it for both formats"
    add_option(parser, "--plot FILE", what, [], type=_plot_file, action="append")


def read_plot_paths(options: argparse.Namespace) -> list[Path]:
    """Return the paths of ``--plot``. Raises `InputError` if there are any and matplotlib is missing."""
    paths: list[Path] = options.plot
    if paths:
        require_matplotlib()
    return paths


def parse_output_path(text: str) -> Path:
    """Check that a file can be written, before hours of measuring. Raises `argparse.ArgumentTypeError` if not."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"is a directory: {text!r}")
    # missing parents are created when the file is written, so check the nearest existing parent
    parent = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise argparse.ArgumentTypeError(f"cannot write in {str(parent)!r}: {text!r}")
    return path


def _plot_file(text: str) -> Path:
    if Path(text).suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"not the name of a {' or '.join(SUFFIXES)} file: {text!r}")
    return parse_output_path(text)


def name_list(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Return an argument type that parses a comma-separated list of known names and drops repeated ones."""

    def names(text: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(text.split(",")))
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"not one of {', '.join(known)}: {name!r}")
        return found

    return names
