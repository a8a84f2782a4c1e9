"""Runs other programs: the command is echoed to the log, the output kept, and a failure ends with its last lines."""

from __future__ import annotations

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
from typing import TextIO

from wheelfactory.core.errors import BuildError, FactoryError, ProgramError, RunAgainError
from wheelfactory.core.progress import ProgressPart, logger
from wheelfactory.core.query import NOTICE_PREFIX, describe_signal

LAST_LINES = 15
"""How much of a failed command's output the error shows; the whole is in the log."""
DEFAULT_HINT = "fix what the last lines of its output name, then run the same command again"
"""The hint for a failed command, unless its caller knows a better one."""

_NINJA = re.compile(r"^\[(\d+)/(\d+)\] (?:(\d\S*/min, .*?): )?")


def run(
    command: Sequence[str | Path],
    *,
    failure: type[FactoryError] = BuildError,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a short command, however it ends; raises `failure` if there is no such program.

    After `timeout` seconds the command is killed and `subprocess.TimeoutExpired` raised.
    """
    with _started(command, failure):
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environ,
            cwd=cwd,
        )
    with process, _endable(process):
        output, errors = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


_running: set[subprocess.Popen[str]] = set()
"""What threads wait for, so that the main one can end it when it is interrupted."""


@contextmanager
def _endable(process: subprocess.Popen[str]) -> Iterator[None]:
    """A block that `kill_running` can end by ending a program, and that leaves none behind."""
    _running.add(process)
    try:
        yield
    except BaseException:
        _end(process)
        raise
    finally:
        _running.discard(process)


def kill_running() -> None:
    """End the programs that other threads wait for; those are told as of any that was killed."""
    for process in list(_running):
        _end(process)


@contextmanager
def _started(command: Sequence[str | Path], failure: type[FactoryError]) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, PermissionError) as error:
        raise failure("cannot run", f"{command[0]} ({error.strerror})", "install it, or put it on PATH") from None


def capture(
    command: Sequence[str | Path],
    *,
    failure: type[FactoryError] = BuildError,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    hint: str = DEFAULT_HINT,
) -> str:
    """What a short command prints on stdout; raises `failure` with the end of its output if it fails."""
    done = run(command, failure=failure, environ=environ, cwd=cwd)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
        raise failure("command failed", f"{shlex.join(map(str, command))} ({_ending(done.returncode)})\n{tail}", hint)
    return done.stdout


def failure_reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command failed, in one line: the signal that ended it, else the last line it said."""
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return said[-1] if said and done.returncode > 0 else _ending(done.returncode)


def _ending(returncode: int) -> str:
    return describe_signal(-returncode) if returncode < 0 else f"exit status {returncode}"


def run_logged(
    command: Sequence[str | Path],
    log: Path,
    *,
    environ: Mapping[str, str],
    part: ProgressPart,
    deadline: float | None = None,
) -> str:
    """Run a long command with its stderr in `log` and return its stdout; ninja's ``[n/m]`` lines feed `part`.

    It is ended with all of its session if this is interrupted, or at `deadline` (seconds since 1970). Raises
    `BuildError` with the last lines of the log and its place, `RunAgainError` at the deadline.
    """
    name = Path(command[0]).name
    # stdout goes to a file: a pipe that nobody reads while stderr is read would stop the command when it is full
    with log.open("w", encoding="utf-8") as file, tempfile.TemporaryFile("w+", errors="replace") as output:
        file.write(f"+ {shlex.join(map(str, command))}\n")
        file.flush()
        with _started(command, BuildError):
            process = subprocess.Popen(
                command,
                env=environ,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        assert process.stderr
        with (
            process,
            _endable(process),
            deadline_timer(deadline, partial(_end, process)) as was_ended,
        ):
            last = log_output(process.stderr, file, part)
        if was_ended():
            raise deadline_error(name)
        output.seek(0)
        said = output.read()
    if process.returncode:
        raise build_failure(name, _ending(process.returncode), log, last)
    return said


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it may lead no group


@contextmanager
def deadline_timer(deadline: float | None, end: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Call `end` at a time (seconds since 1970) if the block still runs then; gives whether that has happened."""
    happened = threading.Event()

    def at_deadline() -> None:
        happened.set()
        end()

    timer = threading.Timer(max(0.0, (deadline or 0.0) - time.time()), at_deadline)
    timer.daemon = True
    if deadline is not None:
        timer.start()
    try:
        yield happened.is_set
    finally:
        timer.cancel()


def log_output(lines: Iterable[str], log: TextIO, part: ProgressPart) -> list[str]:
    """Write what a build says to its log as it comes, tell a person what is for them, and give the last lines."""
    last: deque[str] = deque(maxlen=LAST_LINES)
    for line in lines:
        log.write(line)
        log.flush()
        last.append(line.rstrip())
        if line.startswith(NOTICE_PREFIX):
            logger.warning("%s", line.removeprefix(NOTICE_PREFIX).rstrip())
        if match := _NINJA.match(line):
            part(int(match[1]), int(match[2]), match[3] or "")
    return list(last)


def build_failure(name: str, ending: str, log: Path, last: Sequence[str]) -> ProgramError:
    """The error for a build that failed by itself: the last lines, and its log, which tells the cause."""
    return ProgramError("build failed", "\n".join([f"{name} ({ending})", *last]), "", log=log)


def deadline_error(name: str) -> RunAgainError:
    """The error for a build that was ended at its deadline."""
    return RunAgainError("the time is up", name, "run the same command again: what was compiled is kept")
