"""Run other programs. A failure is an error that shows the last lines of the output.

`core.query` runs the programs whose failure is a result.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from wheelfactory.core.errors import BuildError, FactoryError, ProgramError, RunAgainError
from wheelfactory.core.progress import ProgressCallback, logger
from wheelfactory.core.query import NOTICE_PREFIX, describe_signal
from wheelfactory.core.wrap import write_lines

LAST_LINES = 15
"""Lines of a failed command's output in its error; the log has all of them."""
DEFAULT_HINT = "fix the problem in the last lines of its output, then run the same command again"

GIT_ENVIRON = {"GIT_TERMINAL_PROMPT": "0", "GIT_HTTP_LOW_SPEED_LIMIT": "1000", "GIT_HTTP_LOW_SPEED_TIME": "300"}
"""For git that reads from a server: never a prompt, and an end if fewer bytes a second come for that many seconds."""

Look: TypeAlias = Callable[[bytes, bytes], None]
"""Gets what a command has written to stdout and stderr so far, every `_LOOK_S` while it runs."""
_LOOK_S = 1.0
_NINJA = re.compile(r"^\[(\d+)/(\d+)\] (?:(\d\S*/min, .*?): )?")


def ignore_output(_output: bytes, _errors: bytes) -> None:
    """A `Look` that does nothing."""


def run(
    command: Sequence[str | Path],
    *,
    failure: type[FactoryError] = BuildError,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    look: Look = ignore_output,
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its output, whatever its exit status.

    Raises `failure` if the program cannot be started, and `subprocess.TimeoutExpired` after `timeout` seconds, when
    the command is killed.
    """
    end = math.inf if timeout is None else time.monotonic() + timeout
    with _started(command, failure, stdout=subprocess.PIPE, env=environ, cwd=cwd) as process:
        while True:
            try:
                output, errors = process.communicate(timeout=min(_LOOK_S, max(0.0, end - time.monotonic())))
                return subprocess.CompletedProcess(command, process.returncode, output, errors)
            except subprocess.TimeoutExpired as waiting:
                if time.monotonic() >= end:
                    raise
                look(waiting.stdout or b"", waiting.stderr or b"")


# the programs that threads wait for. Only the main thread gets Ctrl-C, so it must be able to kill them
_running: set[subprocess.Popen[str]] = set()


@contextmanager
def _started(
    command: Sequence[str | Path], failure: type[FactoryError], **options: Any
) -> Iterator[subprocess.Popen[str]]:
    """Start a program, and wait for its end. `kill_running` kills it during the block, and so does a failed block."""
    try:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace", **options)
    except (FileNotFoundError, PermissionError) as error:
        raise failure("cannot run", f"{command[0]} ({error.strerror})", "install it, or put it on PATH") from None
    with process:
        _running.add(process)
        try:
            yield process
        except BaseException:
            _kill(process)
            raise
        finally:
            _running.discard(process)


def kill_running() -> None:
    """Kill the programs that other threads wait for; each thread then sees its program as killed."""
    for process in list(_running):
        _kill(process)


def capture(
    command: Sequence[str | Path],
    *,
    failure: type[FactoryError] = BuildError,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    hint: str = DEFAULT_HINT,
    look: Look = ignore_output,
) -> str:
    """Run a command and return its stdout; raises `failure` with the last lines of its output if it fails."""
    done = run(command, failure=failure, environ=environ, cwd=cwd, look=look)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
        which = f"{shlex.join(map(str, command))} ({_describe_exit(done.returncode)})\n{tail}"
        raise failure("command failed", which, hint)
    return done.stdout


def failure_reason(done: subprocess.CompletedProcess[str]) -> str:
    """Describe why a command failed: the signal that killed it, else the last line of its output."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1] if lines and done.returncode > 0 else _describe_exit(done.returncode)


def _describe_exit(returncode: int) -> str:
    return describe_signal(-returncode) if returncode < 0 else f"exit status {returncode}"


def run_logged(
    command: Sequence[str | Path],
    log: Path,
    *,
    environ: Mapping[str, str],
    report_progress: ProgressCallback,
    deadline: float | None = None,
) -> str:
    """Run a long command, write its stderr to `log`, report ninja's ``[n/m]`` lines, and return its stdout.

    Raises `BuildError` with the last lines of the log if the command fails, and `RunAgainError` at `deadline` (seconds
    since 1970), when the command and its children are killed.
    """
    name = Path(command[0]).name
    # stdout goes to a file: a full pipe would block the command, because only stderr is read while it runs
    started = f"+ {shlex.join(map(str, command))}"
    with open_log(log, started) as file, tempfile.TemporaryFile("w+", errors="replace") as output:
        with (
            _started(command, BuildError, stdout=output, env=environ, start_new_session=True) as process,
            deadline_timer(deadline, partial(_kill, process)) as is_expired,
        ):
            assert process.stderr
            last = log_output(process.stderr, file, report_progress)
        if is_expired():
            raise deadline_error(name)
        output.seek(0)
        printed = output.read()
    if process.returncode:
        raise build_failure(name, _describe_exit(process.returncode), log, last)
    return printed


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):  # a short command shares our group, so that its pid is no group id
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


@contextmanager
def open_log(path: Path, *lines: str) -> Iterator[TextIO]:
    """Open a log, in a folder that is made if it is missing, with these first lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        write_lines(file, lines)
        file.flush()
        yield file


@contextmanager
def deadline_timer(deadline: float | None, kill: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `kill` at `deadline` (seconds since 1970) if the block still runs; yield a function that says if it did."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        kill()

    timer = threading.Timer(max(0.0, (deadline or 0.0) - time.time()), expire)
    timer.daemon = True
    if deadline is not None:
        timer.start()
    try:
        yield expired.is_set
    finally:
        timer.cancel()


def log_output(lines: Iterable[str], log: TextIO, report_progress: ProgressCallback) -> list[str]:
    """Copy a build's output to its log line by line, show notices and progress, and return the last lines."""
    last: deque[str] = deque(maxlen=LAST_LINES)
    for line in lines:
        write_lines(log, [line.rstrip("\n")])
        log.flush()  # so that `tail -f` and a killed run have every line
        last.append(line.rstrip())
        if line.startswith(NOTICE_PREFIX):
            logger.warning("%s", line.removeprefix(NOTICE_PREFIX).rstrip())
        if match := _NINJA.match(line):
            report_progress(int(match[1]), int(match[2]), match[3] or "")
    return list(last)


def build_failure(name: str, reason: str, log: Path, last: Sequence[str]) -> ProgramError:
    """Create the error of a build that exited with a failure status: `reason`, and the `last` lines of its log."""
    return ProgramError("build failed", "\n".join([f"{name} ({reason})", *last]), "", log=log)


def deadline_error(name: str) -> RunAgainError:
    """Create the error of a build that was killed at its deadline."""
    return RunAgainError("time limit reached", name, "run the same command again: compiled objects are kept")
