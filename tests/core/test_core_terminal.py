"""Tables and lines on stdout: plain in a pipe, ruled, coloured and wrapped on a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from wheelfactory.core.terminal import TextColumn, TextTable, table_lines, wrap_lines

TABLE = TextTable(
    (TextColumn("ROCm"), TextColumn("wanted", is_number=True), TextColumn("published", is_number=True, style="green")),
    (("7.2", "23", "1"), ("6.2.4", "19", "0")),
    ("all", "42", "1"),
)
PLAIN = ["ROCm   wanted  published", "7.2        23          1", "6.2.4      19          0", "all        42          1"]
SENTENCE = "  320 cells not: CK kernels need hipcc and this machine has no ROCm; use --executor docker, or a runner"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(autouse=True)
def _neutral(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the terminal that runs the tests."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, markup=False, highlight=False, width=width)


def test_a_table_in_a_pipe_is_aligned_text() -> None:
    assert table_lines(TABLE, Console(file=io.StringIO())) == PLAIN


def test_stdout_of_a_program_is_plain_in_a_pipe_whatever_the_width() -> None:
    code = "from core.test_core_terminal import *; print(*table_lines(TABLE), *wrap_lines([SENTENCE]), sep='\\n')"
    environ = {"PYTHONPATH": ":".join(sys.path), "COLUMNS": "10", "TERM": "xterm-256color"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.splitlines() == [*PLAIN, SENTENCE]


def test_a_table_on_a_terminal_has_a_rule_and_colours() -> None:
    lines = table_lines(TABLE, terminal(80))
    plain = [COLOUR.sub("", line).strip() for line in lines if COLOUR.sub("", line).strip()]
    assert [line.split() for line in plain if "─" not in line] == [line.split() for line in PLAIN]
    assert any("─" in line for line in plain)
    assert ["\x1b[32m" in line for line in lines if "23" in line or "19" in line] == [True, False], "zero is not green"


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    lines = [*table_lines(TABLE, terminal(width)), *wrap_lines([SENTENCE], terminal(width))]
    assert max(len(COLOUR.sub("", line)) for line in lines) <= width


def test_lines_are_wrapped_between_words_with_an_indent() -> None:
    first, second = wrap_lines([SENTENCE], terminal(80))
    assert (first, second) == (SENTENCE[: len(first)], "      " + SENTENCE[len(first) + 1 :])


def test_no_color_leaves_the_table_without_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("\x1b[32m" in line for line in table_lines(TABLE, terminal(80)))


def test_a_dumb_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert table_lines(TABLE, terminal(80)) == PLAIN
    assert wrap_lines([SENTENCE], terminal(80)) == [SENTENCE]
