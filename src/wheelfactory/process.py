"""Runs other programs: the command is echoed to the log, the output kept, and a failure ends with its last lines."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelfactory.errors import BuildError, FactoryError
from wheelfactory.progress import Part

LAST_LINES = 15
"""How much of a failed command's output the error shows; the whole is in the log."""

_NINJA = re.compile(r"^\[(\d+)/(\d+)\] ")


def capture(
    command: Sequence[str | Path],
    *,
    failure: type[FactoryError] = BuildError,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    hint: str = "",
) -> str:
    """What a short command prints on stdout; raises `failure` with the end of its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, cwd=cwd)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
        raise failure(
            "command failed", f"{shlex.join(map(str, command))} (exit status {done.returncode})\n{tail}", hint
        )
    return done.stdout


def run_logged(command: Sequence[str | Path], log: Path, *, environ: Mapping[str, str], part: Part) -> str:
    """Run a long command with its stderr in `log` and return its stdout; ninja's ``[n/m]`` lines feed `part`.

    Raises `BuildError` with the last lines of the log and its place.
    """
    last: deque[str] = deque(maxlen=LAST_LINES)
    with log.open("w", encoding="utf-8") as file:
        file.write(f"+ {shlex.join(map(str, command))}\n")
        with subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            assert process.stderr and process.stdout
            for line in process.stderr:
                file.write(line)
                last.append(line.rstrip())
                if match := _NINJA.match(line):
                    part(int(match[1]), int(match[2]))
            output = process.stdout.read()
    if process.returncode:
        tail = "\n".join(last)
        raise BuildError(
            "build failed",
            f"{Path(command[0]).name} (exit status {process.returncode})\n{tail}",
            f"the full log is {log}",
        )
    return output
