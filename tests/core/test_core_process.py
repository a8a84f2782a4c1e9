"""Subprocesses: output is kept, progress is shown, and an error ends with the last lines of output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wheelfactory.core.errors import BuildError, SourceError
from wheelfactory.core.process import LAST_LINES, capture, failure_reason, kill_running, run, run_logged

PYTHON = sys.executable


class Counted:
    """A `ProgressCallback` that records its calls."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int]] = []
        self.notes: list[str] = []

    def __call__(self, done: int, total: int, note: str = "") -> None:
        self.parts.append((done, total))
        self.notes.append(note)


def logged(code: str, log: Path, counted: Counted | None = None) -> str:
    return run_logged([PYTHON, "-c", code], log, environ=os.environ, report_progress=counted or Counted())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log in a folder that is not there yet."""
    return tmp_path / "logs/cell.log"


# commands of other threads

SLEEPS = "import subprocess, time; subprocess.run(['sleep', '60'])"


def test_a_short_command_of_another_thread_can_be_killed() -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, [PYTHON, "-c", "import time; time.sleep(60)"])
        while not waiting.done():
            kill_running()
            time.sleep(0.05)
    assert waiting.result().returncode == -signal.SIGKILL


def test_a_long_command_is_killed_with_its_children(log: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(logged, SLEEPS, log)
        while not waiting.done():
            kill_running()
            time.sleep(0.05)
    assert "killed by SIGKILL" in str(waiting.exception())


# long commands


def test_stdout_is_the_result_and_stderr_is_logged_below_the_command(log: Path) -> None:
    code = "import sys; print('dist/x.whl'); print('compiling', file=sys.stderr)"
    assert logged(code, log) == "dist/x.whl\n"
    command, *lines = log.read_text().splitlines()
    assert command.startswith(f"+ {PYTHON} -c ")
    assert lines == ["compiling"]


def test_ninja_lines_report_progress(log: Path) -> None:
    code = """
import sys
for line in ("[1/3] hipcc a.o", "see [9/9] there", " [7/7] indented", "[2/3] 4.0/min, 9 s left: b", "[3/3] c"):
    print(line, file=sys.stderr)
"""
    counted = Counted()
    logged(code, log, counted)
    assert counted.parts == [(1, 3), (2, 3), (3, 3)]
    assert counted.notes == ["", "4.0/min, 9 s left", ""]


def test_a_failure_ends_with_the_last_lines_and_names_the_log(log: Path) -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(100)]; sys.exit(4)"
    with pytest.raises(BuildError, match="build failed") as caught:
        logged(code, log)
    first, *lines = caught.value.which.splitlines()
    assert first == f"{Path(PYTHON).name} (exit status 4)"
    assert lines == [f"line {n}" for n in range(100 - LAST_LINES, 100)]
    assert caught.value.log == log
    assert "line 0\n" in log.read_text()


def test_much_output_on_both_streams_does_not_stop_the_command(log: Path) -> None:
    code = "import sys; sys.stdout.write('x' * 300_000); sys.stdout.flush(); sys.stderr.write('y' * 300_000)"
    assert len(logged(code, log)) == 300_000


def test_output_with_invalid_utf8_is_kept(log: Path) -> None:
    code = "import sys; sys.stderr.buffer.write(b'caf\\xe9 [\\n'); sys.stdout.buffer.write(b'\\xff\\n')"
    assert logged(code, log) == "\N{REPLACEMENT CHARACTER}\n"
    assert "caf\N{REPLACEMENT CHARACTER} [" in log.read_text()


def test_a_command_gets_only_the_given_environment(log: Path) -> None:
    code = "import os; print(os.environ.get('GPU_ARCHS'), os.environ.get('HOME'))"
    assert (
        run_logged([PYTHON, "-c", code], log, environ={"GPU_ARCHS": "gfx942"}, report_progress=Counted())
        == "gfx942 None\n"
    )


# short commands


def test_capture_returns_stdout(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getcwd(), os.environ['WHO']); print('a warning', file=sys.stderr)"
    assert capture([PYTHON, "-c", code], environ={"WHO": "you"}, cwd=tmp_path) == f"{tmp_path} you\n"


def test_a_failed_capture_raises_the_given_error_with_the_last_lines() -> None:
    code = "import sys; print('out\\n' * 1000); print('fatal: no such tag', file=sys.stderr); sys.exit(128)"
    with pytest.raises(SourceError, match="command failed") as caught:
        capture([PYTHON, "-c", code], failure=SourceError, hint="check the tag")
    first, *_, last = caught.value.which.splitlines()
    assert (first.endswith("(exit status 128)"), last) == (True, "fatal: no such tag")
    assert len(caught.value.which.splitlines()) == LAST_LINES + 1
    assert caught.value.hint == "check the tag"


def test_a_missing_program_is_the_given_error() -> None:
    for program in ("no-such-program", "/no/such/program", "/etc/passwd"):
        with pytest.raises(SourceError, match=f"cannot run: {program}") as caught:
            capture([program], failure=SourceError)
        assert "PATH" in caught.value.hint


def test_what_a_command_has_written_is_seen_while_it_runs() -> None:
    seen: list[tuple[bytes, bytes]] = []
    code = (
        "import sys, time; print('1', flush=True); print('at', file=sys.stderr, flush=True); time.sleep(1.5); print(2)"
    )
    assert run([PYTHON, "-c", code], look=lambda *written: seen.append(written)).stdout == "1\n2\n"
    assert seen[-1] == (b"1\n", b"at\n")


def test_a_command_is_killed_at_its_timeout() -> None:
    """`run` waits for the end of the command, so that it returns early only if it killed it."""
    started = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run([PYTHON, "-c", "import time; time.sleep(60)"], timeout=0.2)
    assert time.monotonic() - started < 30


def test_a_failure_reason_is_the_signal_or_the_last_line() -> None:
    for code, why in (
        ("print('1'); raise SystemExit('the last word')", "the last word"),
        ("print('only on stdout  \\n\\n'); raise SystemExit(2)", "only on stdout"),
        ("raise SystemExit(3)", "exit status 3"),
        ("import os; print('fine', flush=True); os.abort()", "killed by SIGABRT"),
        ("import os; os.kill(os.getpid(), 40)", "killed by signal 40"),
    ):
        assert failure_reason(run([PYTHON, "-c", code])) == why
