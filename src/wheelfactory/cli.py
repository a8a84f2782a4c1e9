"""The command line: dispatches to the commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

from wheelfactory.commands.options import find_hint
from wheelfactory.core.errors import FactoryError, InputError, as_factory_error
from wheelfactory.core.files import factory_version
from wheelfactory.core.wrap import wrap_line

COMMANDS = {
    "doctor": "find the wheel for this machine, or diagnose a broken install",
    "explain": "explain the error in the output of a build, of pip or of a GPU, or describe a cell",
    "inspect": "show the metadata and contents of any wheel",
    "validate": "run the kernels of a wheel or an install on a GPU, and check the results (exit code 3 if wrong)",
    "bench": "benchmark attention and training, and compare reports",
    "run": "build and verify cells, publish to a directory, and index it",
    "build": "build the wheel of one cell and print its path",
    "plan": "estimate the time, memory and disk space needed to build cells",
    "status": "show which cells are published, missing or excluded",
    "verify": "verify wheels (exit code 3 if one fails)",
    "publish": "verify and publish wheels to a directory or GitHub, or yank one",
    "matrix": "print the cells to build as the JSON matrix of a GitHub job",
    "kernels": "compile a kernel set that several cells share, or one shard of it",
    "repair": "give a wheel of setup.py its version label, METADATA and platform tag",
    "index": "generate the package index and the pages of a release",
    "notes": "print the release notes of a manifest",
    "ci": "run a step of the GitHub workflows",
}
"""Commands and their summaries, in the order of ``--help``: what users of a wheel run, then what builds and publishes.

Each is a module or package of `wheelfactory.commands`.
"""

SUBCOMMANDS = {
    "bench": {
        "attention": "time attention over a sweep of sequence lengths",
        "training": "train a small transformer with each backend; optionally compare with an earlier report",
        "trend": "show how training speed changed over several reports",
    },
    "ci": {
        "jobs": "print the job matrices of a workflow run",
        "baseline": "build reference wheels with plain setup.py, for comparison with published wheels",
        "digest": "print the digest of a folder, or compare it with the digest of another job",
        "check-run": "take the downloaded kernels of a run of build.yml whose digests its own jobs named",
        "settings": "list the settings of a repository on GitHub that its workflows need and that are off",
        "collect": "upload the kernel sets of a workflow run, and print the cells that can be built",
        "publish-kernels": "publish the kernel sets that `ci collect` uploaded, with their attestation",
        "kernels": "download the kernel sets that a batch of cells needs",
        "batch": "build, prove or verify the wheels of a batch of cells",
        "reconcile": "compare the planned, built and published cells of a run (exit code 1 if any is missing)",
        "check": "compare a published site with its target, and install a sample of its wheels (exit code 3 for drift)",
        "answer": "read a wheel request on stdin, and print a link to the matching wheels",
    },
}
"""Subcommands and their summaries, for the commands that have some; each is in a module of the command's package."""

MODULES = {
    **dict.fromkeys(SUBCOMMANDS["bench"], "bench"),
    **dict.fromkeys(("collect", "publish-kernels", "check-run"), "ci.kernels"),
    "baseline": "ci.batch",
    "reconcile": "ci.jobs",
}
"""The subcommands that share a module, which has them as ``add_NAME`` and ``execute_NAME``."""

WORKFLOW_COMMANDS = ("ci",)
"""Commands that only workflows run; ``--help`` lists them apart."""

# the status that a shell reports for a program killed by SIGPIPE: 128 + 13
CLOSED_PIPE = 141

_COMMAND = re.compile(rf"\bwheelfactory(?= (?:{'|'.join(COMMANDS)})\b)")


def _as_called(text: str) -> str:
    """`text` with the name by which the user called this program, where it names a command: ``./factory plan``."""
    return _COMMAND.sub(lambda _: os.environ.get("WHEELFACTORY_COMMAND", "wheelfactory"), text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A user's mistake prints an error line and a hint, never a traceback.

    A command gets its options, with the environment of this process as ``environ``.
    """
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        given = sys.argv[1:] if arguments is None else list(arguments)
        parser = _parser([text for text in given if not text.startswith("-")])
        options = parser.parse_args(given, argparse.Namespace(environ=os.environ))
        code: int = options.execute(options)
        _flush()
    except FactoryError as error:
        return _fail(error)
    except BrokenPipeError:
        return CLOSED_PIPE
    except KeyboardInterrupt as interruption:
        by = str(interruption) or "Ctrl-C"
        return _fail(FactoryError("interrupted", f"by {by}", "run the same command again to continue"))
    except OSError as error:
        return _fail(as_factory_error(error))
    finally:
        _drop_unwritten()
    return code


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Handle SIGTERM like Ctrl-C, so that child processes and scratch folders are cleaned up."""
    raise KeyboardInterrupt(signal.Signals(number).name)


def _fail(error: FactoryError) -> int:
    from wheelfactory.commands.options import print_messages  # imported late, as all commands are

    _drop_unwritten()  # flushes stdout: the error comes after the results, also where both go to one file
    hint = find_hint(error)
    print_messages(*map(_as_called, [f"error: {error}", *([f"hint: {hint}"] if hint else [])]))
    return error.exit_code


def _flush() -> None:
    print(end="", flush=True)  # unlike sys.stdout.flush(), print accepts a stdout that was closed before the start


def _drop_unwritten() -> None:
    """Discard buffered output for a closed pipe or a full disk, for which Python would print an error at exit."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _HelpFormatter(argparse.HelpFormatter):
    """Breaks lines between words only: argparse breaks ``--dry-run`` and ``flash-attn`` at their hyphens.

    An example is not broken, so that it can be copied.
    """

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap_line(" ".join(_as_called(text).split()), width, further="")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = ((line, None if line.startswith("example: ") else width) for line in _as_called(text).split("\n"))
        return "\n".join(part for line, most in lines for part in wrap_line(line, most, indent, indent))


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors like all other code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _HelpFormatter, **options})

    def error(self, message: str) -> NoReturn:
        """Raise `InputError`, where argparse would print the usage and exit; the hint has the name that was meant."""
        wrong = re.search(r"invalid choice: '(?P<choice>[^']+)'|unrecognized arguments: (?P<option>[^\s=]+)", message)
        near = get_close_matches(wrong["choice"] or wrong["option"], [*self.names()], 1) if wrong else []
        meant = "".join(f"did you mean {name}? " for name in near)
        if wrong and wrong["option"] and wrong["option"][0] != "-":  # argparse takes all names at the first of them
            meant = "omit it, or move the options before or behind all names; "
        raise InputError("bad arguments", message, f"{meant}run `{self.prog} --help`")

    def names(self) -> Iterator[str]:
        """The options, their choices and the commands of this parser and those below it."""
        for action in self._actions:
            yield from (*action.option_strings, *map(str, action.choices or ()))
            if isinstance(action, argparse._SubParsersAction):
                yield from (name for parser in action.choices.values() for name in parser.names())

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        """Convert an argument, and reject an empty one unless the default is empty too."""
        # "" is usually an unset shell variable, and as a path the current folder; workflows pass unset settings as ""
        if not text and action.default != "" and action.nargs != argparse.PARSER:
            raise argparse.ArgumentError(action, "must not be empty")
        return super()._get_value(action, text)


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Create the parser of all commands, with the options of the command in `words`, such as ``ci jobs``."""
    parser = _Parser(
        prog=os.environ.get("WHEELFACTORY_COMMAND", "wheelfactory"),
        add_help=False,  # the options come last
        description="Build, verify and publish flash-attn wheels for AMD ROCm.",
        epilog="exit codes: 0 done, 1 failed, 2 bad matrix or arguments, 3 verification failed, 4 build failed, "
        "5 nothing to do, 6 time limit reached (run the same command again to continue)",
    )
    _add_commands(parser, COMMANDS, words)
    for name in WORKFLOW_COMMANDS:
        parser.add_argument_group("commands for workflows", f"{name}: {COMMANDS[name]}")
    options = parser.add_argument_group("options")
    options.add_argument("-h", "--help", action="help", help="show this help message and exit")
    version = f"wheelfactory {factory_version()}"
    options.add_argument("--version", action="version", version=version, help="show the version and exit")
    return parser


def _add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, str], words: Sequence[str], prefix: str = ""
) -> None:
    """Add commands to a parser; only the one that `words` start with gets its options. `prefix`: of its module."""
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, summary in commands.items():
        # without a help text, argparse leaves it off the list
        shown: dict[str, Any] = {} if name in WORKFLOW_COMMANDS else {"help": summary}
        subparser = subparsers.add_parser(name, description=summary, **shown)
        if not words or name != words[0]:
            continue
        if name in SUBCOMMANDS:
            _add_commands(subparser, SUBCOMMANDS[name], words[1:], f"{name}.")
        else:
            # imports no other command: `matrix` must start without the network libraries and auditwheel
            command = import_module(f"wheelfactory.commands.{MODULES.get(name, prefix + name)}")
            suffix = f"_{name.replace('-', '_')}" if name in MODULES else ""
            getattr(command, f"add{suffix}")(subparser)
            subparser.set_defaults(execute=getattr(command, f"execute{suffix}"))
