"""Options and output that several commands share."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from wheelfactory.core.cell import Cell
from wheelfactory.core.checkout import MATRIX
from wheelfactory.core.errors import InputError
from wheelfactory.matrix.expand import Expansion
from wheelfactory.matrix.select import require_in_matrix

Environ: TypeAlias = Mapping[str, str]


def add_matrix(parser: argparse.ArgumentParser) -> None:
    """``--matrix FILE``"""
    parser.add_argument(
        "--matrix",
        type=Path,
        default=default_matrix(),
        metavar="FILE",
        help="default: matrix.yaml in this folder, else the factory's own",
    )


def default_matrix() -> Path:
    """The matrix.yaml of the folder that the user works in; without one, the factory's."""
    own = Path("matrix.yaml").absolute()
    return own if own.exists() else MATRIX


def add_only(parser: argparse._ActionsContainer) -> None:
    """``--only GLOB``"""
    parser.add_argument("--only", default="*", metavar="GLOB", help="cells whose id matches: '*-torch2.9.1-*-triton'")


def add_cache(parser: argparse.ArgumentParser) -> None:
    """``--cache DIR``"""
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="downloads, environments, logs (default: ~/.cache/wheelfactory)"
    )


def add_dest(parser: argparse.ArgumentParser, default: str, what: str) -> None:
    """``--dest DIR``"""
    what = f"{what} (default: %(default)s)"
    parser.add_argument("--dest", type=Path, default=Path(default), metavar="DIR", help=what)


def add_extended(parser: argparse.ArgumentParser) -> None:
    """``--extended LIST``"""
    parser.add_argument(
        "--extended",
        default="",
        metavar="LIST",
        help="gates to run beside the required ones: all, or gpu",
    )


def add_quick(parser: argparse.ArgumentParser) -> None:
    """``--quick``"""
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out ahead-of-time and interpreter, the gates that take minutes; the wheel is then not verified",
    )


def prepare_cache(options: argparse.Namespace, environ: Environ) -> Path:
    """The folder of downloads, environments and logs; everything in it can be made again.

    Who has a cache downloads: from here on that trusts what the system trusts, as pip's downloads do, since many
    networks have an authority of their own.
    """
    import truststore  # not needed to expand a matrix

    truststore.inject_into_ssl()
    home = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return as_directory(options.cache or home / "wheelfactory")


def as_directory(path: Path) -> Path:
    """The directory, there or still to be made, that an argument names. Raises `InputError` if it is something else."""
    if os.path.lexists(path) and not path.is_dir():
        raise InputError("not a directory", str(path), "name one; it is made if it is not there")
    return path.absolute()


def require_cell(expansion: Expansion, text: str) -> Cell:
    """The cell of a cell id, or of a name that ``matrix --explain`` prints (those have a Python even for Triton).

    Raises `InputError` with the reason if it is none or is not built.
    """
    named = Cell.parse(text)
    cell = Cell.from_axes(named.flash_attn, named.python, named.torch, named.rocm, named.backend)
    return require_in_matrix(expansion, cell, named.python)


def positive_int(text: str) -> int:
    """The whole number of an argument. Raises `argparse.ArgumentTypeError` if it is none from 1 to 999999."""
    if not re.fullmatch("0*[1-9][0-9]{0,5}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"not a number from 1 to 999999: {text!r}")
    return int(text)


def positive_number(text: str) -> float:
    """A number above zero, as an argument's type."""
    if not re.fullmatch("[0-9]{1,6}([.][0-9]{1,6})?", text, re.ASCII) or not float(text):
        raise argparse.ArgumentTypeError(f"not an amount above zero: {text!r}")
    return float(text)


def print_results(*lines: str) -> None:
    """Lines of the result, on stdout."""
    for line in lines:
        print(line)


def print_messages(*lines: str) -> None:
    """Lines for the person who waits, on stderr."""
    for line in lines:
        print(line, file=sys.stderr)
