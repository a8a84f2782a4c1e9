"""Runs other programs: the command is echoed to the log, the output kept, and a failure ends with its last lines."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from wheelfactory.compile.order import NOTE
from wheelfactory.errors import BuildError, FactoryError
from wheelfactory.progress import Part, logger

LAST_LINES = 15
"""How much of a failed command's output the error shows; the whole is in the log."""

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
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=environ,
            cwd=cwd,
            timeout=timeout,
        )


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
    hint: str = "",
) -> str:
    """What a short command prints on stdout; raises `failure` with the end of its output if it fails."""
    done = run(command, failure=failure, environ=environ, cwd=cwd)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
        raise failure("command failed", f"{shlex.join(map(str, command))} ({_ending(done.returncode)})\n{tail}", hint)
    return done.stdout


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command failed, in one line: the signal that ended it, else the last line it said."""
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return said[-1] if said and done.returncode > 0 else _ending(done.returncode)


def _ending(returncode: int) -> str:
    return f"killed by {signal.Signals(-returncode).name}" if returncode < 0 else f"exit status {returncode}"


def run_logged(command: Sequence[str | Path], log: Path, *, environ: Mapping[str, str], part: Part) -> str:
    """Run a long command with its stderr in `log` and return its stdout; ninja's ``[n/m]`` lines feed `part`.

    Raises `BuildError` with the last lines of the log and its place.
    """
    last: deque[str] = deque(maxlen=LAST_LINES)
    # stdout goes to a file: a pipe that nobody reads while stderr is read would stop the command when it is full
    with log.open("w", encoding="utf-8") as file, tempfile.TemporaryFile("w+", errors="replace") as output:
        file.write(f"+ {shlex.join(map(str, command))}\n")
        file.flush()
        with _started(command, BuildError):
            process = subprocess.Popen(
                command, env=environ, stdout=output, stderr=subprocess.PIPE, text=True, errors="replace"
            )
        with process:
            assert process.stderr
            for line in process.stderr:
                file.write(line)
                last.append(line.rstrip())
                if line.startswith(NOTE):
                    logger.warning("%s", line.removeprefix(NOTE).rstrip())
                if match := _NINJA.match(line):
                    part(int(match[1]), int(match[2]), match[3] or "")
        output.seek(0)
        said = output.read()
    if process.returncode:
        tail = "\n".join(last)
        raise BuildError(
            "build failed",
            f"{Path(command[0]).name} ({_ending(process.returncode)})\n{tail}",
            f"the full log is {log}",
        )
    return said
