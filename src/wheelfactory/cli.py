"""The command line: the only place that reads the environment, prints results, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

from wheelfactory.core.checkout import factory_version
from wheelfactory.core.errors import FactoryError, InputError
from wheelfactory.explain.error_hint import find_hint

COMMANDS = {
    "matrix": "print the GitHub Actions matrix",
    "plan": "show the cells and how this machine would build them",
    "kernels": "compile the CK kernels of a set once, or one shard of them",
    "run": "build, verify, publish into a directory, and index",
    "build": "build one cell; the path of its wheel is the only line on stdout",
    "explain": "say what a build log tells, or what a cell is and why it is not built",
    "repair": "give a raw wheel its METADATA, label and platform tag",
    "verify": "refuse wheels that are not what they say (exit code 3)",
    "validate": "run a wheel, or what is installed, and compare it with a reference (exit code 3)",
    "inspect": "print the facts of any wheel",
    "publish": "verify wheels and publish them into a directory or on GitHub, or yank one",
    "index": "write the index of a release directory, or a site, from a manifest",
    "doctor": "say which wheel fits this machine, and what is wrong with one that does not work",
    "bench": "time attention, train a transformer with each backend, and compare reports of that",
    "status": "say what of the matrix is published, what is missing, and what is excluded",
    "notes": "print the release notes that a manifest makes",
    "ci": "run a step of the GitHub workflows",
}
"""Every command, a module or package of `wheelfactory.commands`, and what it does."""

SUBCOMMANDS = {
    "ci": {
        "jobs": "print what the jobs of a workflow run are expanded to",
        "plain": "make the plain builds that wheels are compared with where they are published",
        "collect": "upload the kernel sets that a workflow run compiled; print which cells can be built",
        "reconcile": "compare what a workflow run planned, built and published (exit code 1 for a gap)",
        "answer": "answer a wheel request with the address of the search page that shows its wheels",
    },
}
"""The subcommands of each command that is a package: each is a module of that package, and what it does."""

CLOSED_PIPE = 141
"""What a shell reports for a program that wrote to a closed pipe (128 + SIGPIPE)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code. A user's mistake ends as one error line and a hint, never a traceback."""
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        given = sys.argv[1:] if arguments is None else list(arguments)
        options = _parser([text for text in given if not text.startswith("-")]).parse_args(given)
        code: int = options.execute(options, os.environ)
        _flush()
    except FactoryError as error:
        return _fail(error)
    except BrokenPipeError:
        return CLOSED_PIPE
    except KeyboardInterrupt as interruption:
        by = str(interruption) or "Ctrl-C"
        return _fail(FactoryError("interrupted", f"by {by}", "run the same command again to go on"))
    except OSError as error:
        what, which = error.strerror or type(error).__name__, error.filename or "while reading or writing"
        return _fail(FactoryError(what, which, "when that is mended, run the same command again"))
    finally:
        _drop_unwritten()
    return code


def _interrupt(number: int, _frame: object) -> NoReturn:
    """As Ctrl-C does: what is under way is ended and cleaned up on the way out."""
    raise KeyboardInterrupt(signal.Signals(number).name)


def _fail(error: FactoryError) -> int:
    print(f"error: {error}", file=sys.stderr)
    hint = find_hint(error)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
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

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        """The value of a given or default text, as argparse asks for it.

        Refuses "", which is a shell variable that is not set and would be the current folder as a path. An option may
        be empty if that is its default: workflows pass settings on that nobody made.
        """
        if not text and action.default != "" and action.nargs != argparse.PARSER:
            raise argparse.ArgumentError(action, "must not be empty")
        return super()._get_value(action, text)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands, with the options of the command that the words begin with, such as ``ci jobs``.

    Only that command is imported, so that the matrix needs neither network libraries nor auditwheel.
    """
    parser = _Parser(
        prog="wheelfactory",
        description="Build, verify and publish flash-attn wheels for AMD ROCm.",
        epilog="exit codes: 0 done, 1 failed, 2 bad matrix or arguments, 3 verification refused, 4 build failed, "
        "5 nothing to do, 6 the time is up: run the same command again",
    )
    parser.add_argument("--version", action="version", version=f"wheelfactory {factory_version()}")
    _add_commands(parser, COMMANDS, words, "wheelfactory.commands")
    return parser


def _add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, str], words: Sequence[str], package: str
) -> None:
    """Give a parser the commands of a package. Only the command that the words begin with gets its options."""
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, summary in commands.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if not words or name != words[0]:
            continue
        if name in SUBCOMMANDS:
            _add_commands(subparser, SUBCOMMANDS[name], words[1:], f"{package}.{name}")
        else:
            command = import_module(f"{package}.{name}")
            command.add(subparser)
            subparser.set_defaults(execute=command.execute)
