"""Ask programs and servers within a limit of time: run a program, list the packages of another Python, end a download.

A crash, a timeout or a missing program is a result of a query, no exception: `core.process` runs the programs whose
failure is an error. Part of doctor.py, so it uses only the standard library of Python 3.9.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from wheelfactory.core.errors import InputError
from wheelfactory.core.strict import parse_json

if TYPE_CHECKING:
    from importlib.metadata import Distribution

MAX_OUTPUT = 1 << 20
"""Characters kept of each stream. The doctor's largest query prints a few kB; the rest is a runaway program."""

# starts each line that holds an answer, because torch and other imports print between the answers
ANSWER_PREFIX = "answer:"

NOTICE_PREFIX = "wheelfactory: "
"""Starts each line of a build log that is also shown on stderr while the build runs."""


@dataclass(frozen=True)
class QueryResult:
    """The output of a program, and why it failed."""

    stdout: str
    stderr: str
    error: str = ""
    """``exit code 1``, ``killed by SIGSEGV`` or ``no answer within 60 s``; empty on success."""

    @property
    def last_line(self) -> str:
        """The last line of stderr, which is the exception of a Python program; `error` if it crashed or timed out."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        crashed = not self.error.startswith("exit code")
        return self.error if crashed or not lines else lines[-1]

    @property
    def answers(self) -> dict[str, Any]:
        """The JSON objects of all `ANSWER_PREFIX` lines, merged; the last value of a key wins."""
        answers: dict[str, Any] = {}
        for line in self.stdout.splitlines():
            if line.startswith(ANSWER_PREFIX):
                # a killed program leaves half a line, and another library can print the same prefix
                with suppress(ValueError, TypeError):
                    answers.update(parse_json(line[len(ANSWER_PREFIX) :]))
        return answers


def query_program(command: Sequence[str], environ: Mapping[str, str], seconds: float) -> QueryResult:
    """Run a program without stdin; kill it and its children after `seconds`."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(environ),
            start_new_session=True,  # its children share the session, so that killpg reaches them
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        return QueryResult("", "", f"cannot be run: {error}")
    try:
        stdout, stderr = process.communicate(timeout=seconds)
        code = process.returncode
        failure = describe_signal(-code) if code < 0 else f"exit code {code}" if code else ""
    except subprocess.TimeoutExpired:
        _kill_session(process)
        stdout, stderr = process.communicate()
        failure = f"no answer within {seconds:g} s"
    except BaseException:
        _kill_session(process)
        raise
    return QueryResult(stdout[:MAX_OUTPUT], stderr[-MAX_OUTPUT:], failure)


def _kill_session(process: subprocess.Popen[str]) -> None:
    with suppress(OSError):  # it may have ended already
        os.killpg(process.pid, signal.SIGKILL)


def describe_signal(number: int) -> str:
    """``killed by SIGSEGV`` for the signal that ended a program."""
    with suppress(ValueError):  # real-time signals have no name in `signal.Signals`
        return f"killed by {signal.Signals(number).name}"
    return f"killed by signal {number}"


# runs on Python 3.8 and newer
_QUERY = r"""
import json, sys
sys.path[:] = [folder for folder in sys.path if folder]  # the working directory holds no installed packages
from importlib import util
def origin(name):
    try:
        return util.find_spec(name).origin
    except Exception:
        return None
print("answer:" + json.dumps({"path": sys.path, "origins": {name: origin(name) for name in sys.argv[1:]}}))
"""


@dataclass(frozen=True)
class Packages:
    """Where an interpreter finds its imports."""

    search_path: tuple[str, ...]
    """Its ``sys.path`` without the working directory."""
    origins: Mapping[str, str | None]
    """The file of each requested module; None if it is not installed."""

    def distributions(self, name: str) -> Iterator[Distribution]:
        """Find the distributions of that name in any spelling; Python imports from the first."""
        from importlib.metadata import distributions  # imports the e-mail package: a quarter of each start

        return iter(distributions(name=name, path=list(self.search_path)))


@dataclass(frozen=True)
class Interpreter:
    """A Python to query: its command, its environment, and the most seconds that one answer may take."""

    command: Sequence[str]
    environ: Mapping[str, str]
    seconds: float = 60

    def query(self, *arguments: str) -> QueryResult:
        """Run it with these arguments, as `query_program` does."""
        return query_program([*self.command, *arguments], self.environ, self.seconds)

    def find_packages(self, *modules: str) -> Packages:
        """Query its search path and the files of `modules`, without importing any.

        Raises `InputError` if it does not run.
        """
        result = self.query("-c", _QUERY, *modules)
        if "path" not in result.answers:
            which = f"{self.command[0]} ({result.last_line or 'no output'})"
            raise InputError("cannot examine this Python", which, "name a Python 3.8 or newer with --python")
        importlib.invalidate_caches()  # a caller may install a package and query again
        return Packages(tuple(result.answers["path"]), result.answers["origins"])


DOWNLOAD_TIMEOUT_S = 300.0
"""The total time of a download, whose socket timeout starts anew with each byte that a server sends."""

_T = TypeVar("_T")


def call_within(limit: Callable[[], float], call: Callable[[], _T]) -> _T:
    """Return the result of a call. Raises `TimeoutError` if it takes more seconds than `limit` returns meanwhile.

    The call is then left to its own end, in a daemon thread: nothing else interrupts name servers, TLS and headers
    that come byte by byte.
    """
    answer: Future[_T] = Future()
    start = time.monotonic()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # raised again by the caller
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not answer.done():
        seconds = limit()
        if time.monotonic() - start >= seconds:
            raise TimeoutError(f"took longer than {seconds:.0f} s")
        wait([answer], start + seconds - time.monotonic())
    return answer.result()
