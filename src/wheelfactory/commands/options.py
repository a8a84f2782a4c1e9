"""Options, output and hints shared by several commands and by the scripts that edit matrix.yaml."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from wheelfactory.core.cell import Backend, Cell
from wheelfactory.core.errors import BuildError, FactoryError, InputError
from wheelfactory.core.files import MATRIX
from wheelfactory.core.host import read_host
from wheelfactory.core.wrap import write_lines, write_message

Environ: TypeAlias = Mapping[str, str]

_BYTES = {"MB": 1000**2, "GB": 1000**3, "TB": 1000**4}


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


_TYPES: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("FILE", "DIR", "MANIFEST", "REPORT", "BUNDLE"), Path),
    **dict.fromkeys(("HOURS", "PERCENT", "GIB", "GB"), positive_number),
    "N": positive_int,
    "SIZE": byte_size,
}
"""The type of an option's value, by the name that the usage gives it; other values are texts."""


def add_option(
    parser: argparse._ActionsContainer, usage: str, help_text: str, default: object = None, **more: Any
) -> None:
    """Add an option by its usage.

    ``--json`` is a flag, ``--cache DIR`` takes a value, whose name says its type, ``--dtype one|two`` a choice. The
    help ends with the default. `more` are further arguments of `argparse`.
    """
    name, _, value = usage.partition(" ")
    if "|" in value:
        more = {"choices": value.split("|"), **more}
    elif value:
        more = {"metavar": value, "type": _TYPES.get(value, str), **more}
    elif not more and default is None:
        more = {"action": "store_true"}
    if default is not None:
        more["default"] = default
    if default and "(default" not in help_text:
        help_text += f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
    parser.add_argument(name, help=help_text, **more)


def default_matrix() -> Path:
    """Return matrix.yaml of the current folder if it exists, else the factory's."""
    own = Path("matrix.yaml").absolute()
    return own if own.exists() else MATRIX


SHARED = {
    "--matrix FILE": "read this matrix (default: ./matrix.yaml, else the one bundled with wheelfactory)",
    "--only GLOB": "select cells whose id matches, such as '*-torch2.9.1-*-triton'",
    "--cache DIR": "directory of downloads, environments and logs (default: ~/.cache/wheelfactory)",
    "--cache-size SIZE": "afterwards, remove the least recently used kernels until the rest fits SIZE, such as 20GB",
    "--extended LIST": "also run optional gates: gpu, or all",
    "--quick": "skip the slow gate (emulation); a site then says `not checked` beside the wheel",
    "--budget HOURS": "stop before HOURS have passed; exit code 6 means: run the same command to continue",
    "--site URL": "URL of the site, for install commands (default: TARGET if it is a directory, else its GitHub Pages)",
}
"""The options that several commands have: usage -> help text."""


def add_shared(parser: argparse._ActionsContainer, *usages: str) -> None:
    """Add options of `SHARED`."""
    # not a constant: the current folder decides about the matrix
    defaults = {"--matrix FILE": default_matrix(), "--only GLOB": "*", "--extended LIST": "", "--site URL": ""}
    for usage in usages:
        add_option(parser, usage, SHARED[usage], defaults.get(usage))


def add_dest(parser: argparse.ArgumentParser, default: str, what: str) -> None:
    """Add ``--dest DIR``."""
    add_option(parser, "--dest DIR", what, Path(default))


def prepare_cache(options: argparse.Namespace) -> Path:
    """Return the cache directory, and make later downloads trust the system's certificates."""
    import truststore  # late, because most commands without a cache need no network

    # as pip does, because many networks use their own certificate authority
    truststore.inject_into_ssl()
    return as_directory(options.cache or _default_cache(options.environ))


def _default_cache(environ: Environ) -> Path:
    if (named := Path(environ.get("XDG_CACHE_HOME", ""))).is_absolute():  # its specification ignores a relative one
        return named / "wheelfactory"
    try:
        home = environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container can run as any user
        raise InputError("no folder for the cache", "HOME is not set", "set it, or use --cache DIR") from None
    return Path(home, ".cache/wheelfactory")


def read_context(options: argparse.Namespace) -> Context:
    """Read the matrix of the options and this machine, and create the cache. Raises the errors of both."""
    # late, here and below: the matrix takes half of the start of a command
    from wheelfactory.matrix.facts import Context
    from wheelfactory.matrix.load import load_matrix

    return Context(load_matrix(options.matrix), read_host(options.environ), options.environ, prepare_cache(options))


def as_directory(path: Path) -> Path:
    """Return the absolute path of a directory, which may be missing. Raises `InputError` if it is a file."""
    if os.path.lexists(path) and not path.is_dir():
        raise InputError("not a directory", str(path), "name one; a missing directory is created")
    return path.absolute()


def require_cell(expansion: Expansion, text: str) -> Cell:
    """Return the cell of an id, or of a combination that ``matrix --explain`` prints.

    Raises `InputError` with the reason if the text is not a cell or the matrix excludes it.
    """
    from wheelfactory.matrix.expand import require_in_matrix

    # combinations name a Python even for Triton, whose cells have none
    named = Cell.parse(text)
    axes = (named.flash_attn, named.python, named.torch, named.rocm, named.backend)
    return require_in_matrix(expansion, Cell.from_axes(*axes, amd_torch=named.amd_torch), named.python)


def cells_of_versions(expansion: Expansion, versions: Sequence[str], backends: Iterable[Backend]) -> tuple[Cell, ...]:
    """Return the cells of FLASH_ATTN PYTHON TORCH ROCM. Raises `InputError` with the reason if one is excluded."""
    from wheelfactory.matrix.expand import require_in_matrix

    flash_attn, python, torch, rocm = versions
    cells = (Cell.from_axes(flash_attn, python, torch, rocm, backend) for backend in backends)
    return tuple(require_in_matrix(expansion, cell, python) for cell in cells)


def print_results(*lines: str) -> None:
    """Print lines of the result on stdout, not wrapped: JSON, Markdown, or commands to be copied."""
    write_lines(sys.stdout, lines)


def print_outputs(values: Mapping[str, object]) -> None:
    """Print step outputs as ``name=value`` lines for ``$GITHUB_OUTPUT``; booleans become ``true`` and ``false``."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}
    # a line break would let a value add outputs of its own
    assert not any("\n" in text for text in texts.values())
    print_results(*(f"{name}={text}" for name, text in texts.items()))


def print_text(*parts: str | TextTable) -> None:
    """Print sentences and tables of the result on stdout, within the width of a terminal."""
    from wheelfactory.core.terminal import wrap_lines  # late: create_matrix.py needs no rich

    print_rendered(*wrap_lines(parts))


def print_rendered(*lines: str) -> None:
    """Print on stdout what `core.terminal` rendered, with its colours."""
    for line in lines:
        print(line)


def print_messages(*lines: str) -> None:
    """Print progress, warnings and hints on stderr, wrapped between words on a terminal."""
    print(end="", flush=True)  # a log of stdout and stderr has the table before the hint that is about it
    for line in lines:
        write_message(sys.stderr, line)


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
    from wheelfactory.core.terminal import TextTable
    from wheelfactory.matrix.expand import Expansion
    from wheelfactory.matrix.facts import Context
