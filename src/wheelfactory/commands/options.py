"""Options, output and hints shared by several commands and by the scripts that edit matrix.yaml."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from wheelfactory.core.cell import Cell
from wheelfactory.core.errors import DONE, FAILED, BuildError, FactoryError, InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.core.host import read_host
from wheelfactory.core.wrap import terminal_width, wrap_line
from wheelfactory.matrix.expand import Expansion
from wheelfactory.matrix.facts import Context
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.select import require_in_matrix

Environ: TypeAlias = Mapping[str, str]

_BYTES = {"MB": 1000**2, "GB": 1000**3, "TB": 1000**4}


def add_matrix(parser: argparse.ArgumentParser) -> None:
    """Add ``--matrix FILE``."""
    parser.add_argument(
        "--matrix",
        type=Path,
        default=default_matrix(),
        metavar="FILE",
        help="read this matrix (default: ./matrix.yaml, else the one bundled with wheelfactory)",
    )


def default_matrix() -> Path:
    """Return matrix.yaml of the current folder if it exists, else the factory's."""
    own = Path("matrix.yaml").absolute()
    return own if own.exists() else MATRIX


def add_only(parser: argparse._ActionsContainer) -> None:
    """Add ``--only GLOB``."""
    parser.add_argument(
        "--only", default="*", metavar="GLOB", help="select cells whose id matches, such as '*-torch2.9.1-*-triton'"
    )


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add ``--cache DIR``."""
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="directory of downloads, environments and logs (default: ~/.cache/wheelfactory)",
    )


def add_dest(parser: argparse.ArgumentParser, default: str, what: str) -> None:
    """Add ``--dest DIR``."""
    what = f"{what} (default: %(default)s)"
    parser.add_argument("--dest", type=Path, default=Path(default), metavar="DIR", help=what)


def add_extended(parser: argparse.ArgumentParser) -> None:
    """Add ``--extended LIST``."""
    parser.add_argument(
        "--extended",
        default="",
        metavar="LIST",
        help="also run optional gates: gpu, or all",
    )


def add_quick(parser: argparse.ArgumentParser) -> None:
    """Add ``--quick``."""
    parser.add_argument(
        "--quick",
        action="store_true",
        help="skip the slow gate (emulation); the wheel then counts as unverified",
    )


def prepare_cache(options: argparse.Namespace, environ: Environ) -> Path:
    """Return the cache directory, and make later downloads trust the system's certificates."""
    import truststore  # late, because most commands without a cache need no network

    # as pip does, because many networks use their own certificate authority
    truststore.inject_into_ssl()
    home = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return as_directory(options.cache or home / "wheelfactory")


def read_context(options: argparse.Namespace, environ: Environ) -> Context:
    """Read the matrix of the options and this machine, and create the cache. Raises the errors of both."""
    return Context(load_matrix(options.matrix), read_host(environ), environ, prepare_cache(options, environ))


def as_directory(path: Path) -> Path:
    """Return the absolute path of a directory, which may be missing. Raises `InputError` if it is a file."""
    if os.path.lexists(path) and not path.is_dir():
        raise InputError("not a directory", str(path), "name one; a missing directory is created")
    return path.absolute()


def require_cell(expansion: Expansion, text: str) -> Cell:
    """Return the cell of an id, or of a combination that ``matrix --explain`` prints.

    Raises `InputError` with the reason if the text is not a cell or the matrix excludes it.
    """
    # combinations name a Python even for Triton, whose cells have none
    named = Cell.parse(text)
    cell = Cell.from_axes(named.flash_attn, named.python, named.torch, named.rocm, named.backend)
    return require_in_matrix(expansion, cell, named.python)


def positive_int(text: str) -> int:
    """Parse a whole number from 1 to 999999. Raises `argparse.ArgumentTypeError` for anything else."""
    if not re.fullmatch("0*[1-9][0-9]{0,5}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"not a number from 1 to 999999: {text!r}")
    return int(text)


def positive_number(text: str) -> float:
    """Parse a number above zero. Raises `argparse.ArgumentTypeError` for anything else."""
    if not re.fullmatch("[0-9]{1,6}([.][0-9]{1,6})?", text, re.ASCII) or not float(text):
        raise argparse.ArgumentTypeError(f"not a number above zero: {text!r}")
    return float(text)


def byte_size(text: str) -> int:
    """Parse a size with its unit, such as ``20GB``, to bytes. Raises `argparse.ArgumentTypeError` for anything else."""
    number, unit = text[:-2], text[-2:]
    if unit not in _BYTES:
        raise argparse.ArgumentTypeError(f"not a size: {text!r}, one looks like 500MB, 20GB or 1.5TB")
    return round(positive_number(number) * _BYTES[unit])


def print_results(*lines: str) -> None:
    """Print lines of the result on stdout as they are: JSON, tables, or commands to be copied."""
    for line in lines:
        print(line)


def print_text(*lines: str) -> None:
    """Print sentences of the result on stdout, wrapped between words on a terminal."""
    from wheelfactory.core.terminal import wrap_lines  # late: create_matrix.py needs no rich

    print_results(*wrap_lines(lines))


def print_messages(*lines: str) -> None:
    """Print progress, warnings and hints on stderr, wrapped between words on a terminal."""
    print(end="", flush=True)  # a log of stdout and stderr has the table before the hint that is about it
    width = terminal_width(sys.stderr)
    for line in lines:
        for part in wrap_line(line, width):
            print(part, file=sys.stderr)


# for this cause the error's own hint is better, because it names the available memory
OUT_OF_MEMORY = "out of memory"


def find_hint(error: FactoryError) -> str:
    """Return the hint for an error; reads the build log if the error has one."""
    if not isinstance(error, BuildError) or error.log is None:
        return error.hint
    from wheelfactory.explain.causes import find_cause  # imported late: every command imports this module

    try:
        with error.log.open(encoding="utf-8", errors="replace") as file:
            cause = find_cause(file)
    except OSError:  # the log was removed; the error is still valid
        return error.hint
    known = f"{cause.name} ({cause.evidence}): {cause.remedy}" if cause else ""
    if error.hint and (cause is None or cause.name == OUT_OF_MEMORY):
        known = error.hint
    return "; ".join(filter(None, (known, f"the full log is {error.log}")))


if TYPE_CHECKING:
    from wheelfactory.kernels import refresh_sources
    from wheelfactory.matrix.refresh import images, torch_releases


def run_chore(
    refresh: Callable[[], images.ImageChanges | torch_releases.TorchChanges | refresh_sources.SourceChanges],
) -> int:
    """Run a script's refresh, print its findings, and return the exit code."""
    import truststore  # many networks use their own certificate authority

    truststore.inject_into_ssl()
    try:
        findings = refresh()
    except FactoryError as error:
        print_messages(f"error: {error}", f"hint: {error.hint}")
        return error.exit_code
    except KeyboardInterrupt:
        print_messages("error: interrupted: by Ctrl-C", "hint: matrix.yaml is unchanged; run the same command again")
        return FAILED
    print_results(*findings.lines)
    print_messages(findings.summary)
    return DONE
