"""Progress: plain lines without a terminal, bars on a terminal, and the progress of a step."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from rich.console import Console
from rich.progress import Task, TaskID

from wheelfactory.core import progress
from wheelfactory.core.progress import Steps, announced_progress, log_to_stderr, logger

ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[[\d;]*3[0-8][;\d]*m")

REDRAWN_S = 0.3
"""Seconds after which rich has redrawn its bars: it does so ten times a second."""

SECONDS = re.compile(r"\d+\.\d s")

TWO_STEPS = """
from wheelfactory.core.progress import Steps
with Steps(2) as steps:
    with steps.step("build [red]a[/red]") as part:
        part(1, 2)
    with steps.step("index" + 300 * "x"):
        pass
"""


@pytest.fixture(autouse=True)
def _neutral(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the terminal that runs the tests."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, markup=False, highlight=False, width=100)


def pipe() -> Console:
    return Console(file=io.StringIO(), markup=False, highlight=False, soft_wrap=True)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def run_two_steps(console: Console) -> str:
    with Steps(2, console) as steps:
        with steps.step("build a") as part:
            part(1, 2)
        with steps.step("index"):
            pass
    return written(console)


def test_a_pipe_gets_numbered_lines_of_any_length_and_stdout_nothing() -> None:
    environ = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run([sys.executable, "-c", TWO_STEPS], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == ""
    assert SECONDS.sub("0.0 s", done.stderr).replace(300 * "x", "").splitlines() == [
        "[1/2] build [red]a[/red]",
        "[1/2] build [red]a[/red]: 0.0 s",
        "[2/2] index",
        "[2/2] index: 0.0 s",
    ]


def test_a_terminal_gets_bars_that_are_gone_at_the_end() -> None:
    text = run_two_steps(terminal())
    assert f"{ESCAPE}[?25l" in text  # the cursor is hidden while they are drawn
    assert f"{ESCAPE}[?25h" in text
    assert "━" in text
    assert re.search(r"\[1/2\] build a: \d+\.\d s", text)
    assert re.search(r"\[2/2\] index: \d+\.\d s", text)


def test_no_color_has_no_colours_and_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COLOUR.search(run_two_steps(terminal()))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(run_two_steps(terminal()))
    monkeypatch.setenv("TERM", "dumb")
    text = run_two_steps(terminal())
    assert ESCAPE not in text
    assert text.startswith("[1/2] build a\n")


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_long_step_prints_progress_and_time_left(clock: Clock) -> None:
    console = pipe()
    with Steps(1, console) as steps, steps.step("build a") as part:
        for done in range(1, 5):
            clock.now += 20
            part(done, 8)
    assert written(console).splitlines() == [
        "[1/1] build a",
        "    build a: [2/8] 40 s, about 120 s left",
        "    build a: [4/8] 80 s, about 80 s left",
        "[1/1] build a: 80.0 s",
    ]


def test_before_any_progress_a_note_is_shown_and_no_time_left(clock: Clock) -> None:
    console = pipe()
    with Steps(1, console) as steps, steps.step("build a") as part:
        clock.now += 100
        part(0, 8)
        part(0, 8, "8 queued, 0 running, 0 cached")
    assert written(console).splitlines()[1:-1] == ["    build a: [0/8] 100 s, 8 queued, 0 running, 0 cached"]


@pytest.mark.parametrize("make", [pipe, terminal], ids=["pipe", "terminal"])
def test_a_failed_step_is_counted_and_shown_as_failed(make: Callable[[], Console]) -> None:
    console = make()
    with Steps(2, console) as steps:
        with pytest.raises(OSError, match="full"), steps.step("build a"):
            raise OSError("full")
        with steps.step("build b"):
            pass
    assert re.search(r"\[1/2\] build a: failed after \d+\.\d s", written(console))
    assert re.search(r"\[2/2\] build b: \d+\.\d s", written(console))


def test_an_interrupt_restores_the_terminal() -> None:
    console = terminal()
    with pytest.raises(KeyboardInterrupt), Steps(1, console) as steps, steps.step("build a"):
        raise KeyboardInterrupt
    assert f"{ESCAPE}[?25h" in written(console).rpartition(f"{ESCAPE}[?25l")[2]  # the cursor is shown again


@pytest.mark.parametrize("console", [pipe, terminal])
def test_log_messages_are_shown_only_while_steps_run(console: Callable[[], Console]) -> None:
    shown = console()
    with Steps(1, shown) as steps, steps.step("build a"):
        progress.logger.info("installing %s", "torch==2.13.0+cpu")
    progress.logger.info("without a console")
    assert "    installing torch==2.13.0+cpu\n" in written(shown)
    assert "without a console" not in written(shown)


def test_results_stay_on_stdout_while_bars_run_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = terminal()
    with Steps(1, shown):
        sys.stdout.write("a result\n")
    assert capsys.readouterr().out == "a result\n"
    assert "a result" not in written(shown)


def test_a_stage_shows_its_bar_only_while_it_counts() -> None:
    """Pip reports no progress of a file that it finds in its cache, and none while it unpacks."""
    console = terminal()
    with Steps(1, console) as steps, steps.step("build a"), announced_progress("download, MB") as report:
        time.sleep(REDRAWN_S)
        assert "download" not in written(console)
        report(1200, 4900)
        time.sleep(REDRAWN_S)
        report(4900, 4900)
        time.sleep(REDRAWN_S)
        assert "download" not in written(console).rpartition("steps")[2]
    assert "1200/4900" in written(console)


@pytest.mark.parametrize("width", [80, 100])
def test_a_bar_has_one_line_and_whole_numbers_on_a_narrow_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, markup=False, highlight=False, width=width)
    name = "fa2.8.3.post2-rocm7.2-torch2.13.0-py3-triton"
    with Steps(3, console) as steps, steps.step(name) as report_step, announced_progress("download, MB") as report:
        report_step(700, 2775)
        report(90, 191)
        time.sleep(REDRAWN_S)
        report_step(701, 2775)
        report(91, 191)
        time.sleep(REDRAWN_S)
    lines = [re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\r", "", line) for line in written(console).splitlines()]
    assert any(re.search(r"download, MB .* 91/191 .*about \d:\d\d:\d\d left$", line.rstrip()) for line in lines)
    assert any(
        re.search(r"fa2.8.3.post2-rocm7.2.* 701/2775 .*about \d:\d\d:\d\d left$", line.rstrip()) for line in lines
    )
    assert max(map(len, lines)) <= width


def test_a_step_without_a_total_shows_no_count_and_a_stage_without_steps_a_bar_of_its_own() -> None:
    console = terminal()
    with Steps(1, console) as steps, steps.step("build a"):
        time.sleep(REDRAWN_S)
    assert "0/?" not in written(console)
    with log_to_stderr(console), announced_progress("archs") as report:
        report(3, 10)
        time.sleep(REDRAWN_S)
    assert re.search(r"archs .* 3/10", written(console))
    assert f"{ESCAPE}[?25h" in written(console).rpartition("archs")[2], "the cursor is back"


def test_the_progress_of_a_stage_is_a_line_in_a_pipe(clock: Clock) -> None:
    console = pipe()
    with log_to_stderr(console), announced_progress("download, MB") as report:
        clock.now += 40
        report(1000, 4000)
    assert written(console) == "    download, MB: [1000/4000] 40 s, about 120 s left\n"


def test_the_time_left_follows_from_the_mean_speed() -> None:
    """Two of ten that end in the same second after two minutes: eight more take eight minutes."""
    column = progress._TimeLeftColumn()
    task = Task(TaskID(0), "archs", total=10, completed=2, _get_time=lambda: 120.0)
    task.start_time = 0.0
    assert column.render(task).plain == "about 0:08:00 left"
    task.completed = 0
    assert column.render(task).plain == ""


def test_a_long_announcement_is_wrapped_on_a_terminal_only() -> None:
    text = "step 1 of 2: compile the kernels for ten archs; step 2 of 2: compute small cases in the interpreter, slowly"
    lines = []
    for console in (terminal(), pipe()):
        with log_to_stderr(console):
            logger.info(text)
        lines.append(written(console).splitlines())
    assert lines[1] == [f"    {text}"]
    assert len(lines[0]) == 2
    assert " ".join(lines[0]).split() == text.split()
