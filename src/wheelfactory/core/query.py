"""Runs another program for what it says; a crash, a hang or nothing there are answers too, never an exception."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

SAID_AT_MOST = 1 << 20
"""Characters that are kept of what a program printed; what the doctor asks for is far less."""

ANSWER_PREFIX = "answer:"
"""Begins the lines that are answers; torch, and what else is imported, print what they like between them."""

NOTICE_PREFIX = "wheelfactory: "
"""Begins a line of a build's log that is shown while it runs, as nobody else reads the log meanwhile."""


@dataclass(frozen=True)
class QueryResult:
    """What came of a program."""

    stdout: str
    stderr: str
    error: str = ""
    """Why it did not end well: ``exit code 1``, ``killed by SIGSEGV``, ``no answer within 60 s``; empty if it did."""

    @property
    def last_line(self) -> str:
        """The last thing that it complained of, which for a Python program is the exception; else the trouble."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        crashed = not self.error.startswith("exit code")
        return self.error if crashed or not lines else lines[-1]

    @property
    def answers(self) -> dict[str, Any]:
        """The answers in the lines that begin with `ANSWER_PREFIX`, each a JSON object; of two for a name the last counts."""
        found: dict[str, Any] = {}
        for line in self.stdout.splitlines():
            if line.startswith(ANSWER_PREFIX):
                with suppress(ValueError, TypeError):  # killed while it printed, or of something else
                    found.update(json.loads(line[len(ANSWER_PREFIX) :]))
        return found


def query_program(command: Sequence[str], environ: Mapping[str, str], seconds: float) -> QueryResult:
    """Run a program that reads nothing; after `seconds` it and all that it started are killed."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(environ),
            start_new_session=True,  # so that what it started can be ended with it
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in a name
        return QueryResult("", "", f"cannot be run: {error}")
    try:
        output, errors = process.communicate(timeout=seconds)
        code = process.returncode
        trouble = describe_signal(-code) if code < 0 else f"exit code {code}" if code else ""
    except subprocess.TimeoutExpired:
        _kill(process)
        output, errors = process.communicate()
        trouble = f"no answer within {seconds:g} s"
    except BaseException:
        _kill(process)
        raise
    return QueryResult(output[:SAID_AT_MOST], errors[-SAID_AT_MOST:], trouble)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(OSError):  # it may have ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)


def describe_signal(number: int) -> str:
    """How a program ended that a signal killed: ``killed by SIGSEGV``."""
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {number}"
