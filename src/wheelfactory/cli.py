"""The command line: the only place that reads the environment, prints results, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from wheelfactory.commands import build, explain, index, inspect, matrix, plan, publish, repair, run, status, verify
from wheelfactory.errors import FactoryError, InputError

COMMANDS = (matrix, plan, run, build, explain, repair, verify, inspect, publish, index, status)

CLOSED_PIPE = 141
"""What a shell reports for a program that wrote to a closed pipe (128 + SIGPIPE)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code. A user's mistake ends as one error line and a hint, never a traceback."""
    try:
        options = _parser().parse_args(arguments)
        code: int = options.execute(options, os.environ)
        _flush()
    except FactoryError as error:
        return _fail(error)
    except BrokenPipeError:
        return CLOSED_PIPE
    except KeyboardInterrupt:
        return _fail(FactoryError("interrupted", "by Ctrl-C", "run the same command again to go on"))
    except OSError as error:
        what, which = error.strerror or type(error).__name__, error.filename or "while reading or writing"
        return _fail(FactoryError(what, which, "when that is mended, run the same command again"))
    finally:
        _drop_unwritten()
    return code


def _fail(error: FactoryError) -> int:
    print(f"error: {error}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def _flush() -> None:
    print(end="", flush=True)  # unlike sys.stdout.flush(), this stands a stdout that was closed from the start


def _drop_unwritten() -> None:
    """Forget results that nobody takes (a closed pipe, a full disk); Python would complain of them when it ends."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """A parser whose errors have the form of all others."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments. Raises `InputError`."""
        raise InputError("bad arguments", message, f"`{self.prog} --help` says what it takes")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="wheelfactory",
        description="Build, verify and publish flash-attn wheels for AMD ROCm.",
        epilog="exit codes: 0 done, 1 failed, 2 bad matrix or arguments, 3 verification refused, 4 build failed, "
        "5 nothing to do",
    )
    parser.add_argument("--version", action="version", version=f"wheelfactory {_version()}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return parser


def _version() -> str:
    try:
        return version("wheelfactory")
    except PackageNotFoundError:  # run from a checkout, as create_matrix.py does
        return "not installed"
