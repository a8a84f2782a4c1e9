"""The command line: the only place that reads the environment, prints results, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from wheelfactory.commands import build, explain, index, inspect, matrix, plan, publish, repair, run, status, verify
from wheelfactory.errors import DONE, FAILED, FactoryError

COMMANDS = (matrix, plan, run, build, explain, repair, verify, inspect, publish, index, status)

CLOSED_PIPE = 141
"""What a shell reports for a program that wrote to a closed pipe (128 + SIGPIPE)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code. A user's mistake ends as one error line and a hint, never a traceback."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.execute(options, os.environ)
    except FactoryError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except KeyboardInterrupt:
        print("error: interrupted: run the same command again to go on", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"error: {error.strerror}: {error.filename}", file=sys.stderr)
        return FAILED
    return code if code is not None else DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="wheelfactory",
        description="Build, verify and publish flash-attn wheels for AMD ROCm.",
        epilog="exit codes: 0 done, 1 failed, 2 bad matrix or arguments, 3 verification refused, 4 build failed, "
        "5 nothing to do",
    )
    parser.add_argument("--version", action="version", version=f"wheelfactory {version('wheelfactory')}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(subparsers)
    return parser
