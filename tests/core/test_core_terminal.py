"""Text for people: plain in a pipe, ruled and wrapped on a terminal, which nothing in it can control."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.default_styles import DEFAULT_STYLES

from wheelfactory.core.terminal import THEME, TextColumn, TextTable, markdown_lines, table_lines, wrap_lines
from wheelfactory.core.wrap import as_printable, count_text, shorten_names, write_lines, write_message

TABLE = TextTable(
    (TextColumn("ROCm"), TextColumn("wanted", is_number=True), TextColumn("published", is_number=True, style="good")),
    (("7.2", "23", "1"), ("6.2.4", "19", "0")),
    ("all", "42", "1"),
)
PLAIN = ["ROCm   wanted  published", "7.2        23          1", "6.2.4      19          0", "all        42          1"]
SENTENCE = "  320 cells not: CK kernels need hipcc and this machine has no ROCm; use --executor docker, or a runner"
OWN_STYLES = [name for name, style in THEME.styles.items() if style != DEFAULT_STYLES.get(name)]
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture(autouse=True)
def _neutral(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the terminal that runs the tests."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def terminal(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, markup=False, highlight=False, width=width, theme=THEME)


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
    assert ["\x1b[38;5;28m" in line for line in lines if "23" in line or "19" in line] == [True, False], (
        "zero is not green"
    )


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    lines = [*table_lines(TABLE, terminal(width)), *wrap_lines([SENTENCE], terminal(width))]
    assert max(len(COLOUR.sub("", line)) for line in lines) <= width


def test_lines_are_wrapped_between_words_with_an_indent_and_not_within_backticks() -> None:
    first, second = wrap_lines([SENTENCE], terminal(80))
    assert (first, second) == (SENTENCE[: len(first)], "      " + SENTENCE[len(first) + 1 :])
    line = "hint: choose shorter sequence lengths for a machine without a GPU: `bench attention --seqlens 128,256,512`"
    assert "    `bench attention --seqlens 128,256,512`" in wrap_lines([line], terminal(80))


def luminance(red: int, green: int, blue: int) -> float:
    """The relative luminance of WCAG 2."""
    parts = (part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in (red, green, blue))
    return sum(part * weight for part, weight in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("name", OWN_STYLES)
def test_every_colour_is_readable_on_white_and_on_black(name: str) -> None:
    colour = THEME.styles[name].color
    if colour is None or colour.is_default:
        return
    assert colour.number is None or colour.number >= 16, "the terminal chooses the first 16 colours"
    light = luminance(*colour.get_truecolor())
    assert min(1.05 / (light + 0.05), (light + 0.05) / 0.05) > 3.5


def test_bars_have_only_colours_of_the_theme() -> None:
    """Rich's own: yellow for the time that has passed, which cannot be read on white."""
    assert {"bar.back", "bar.complete", "bar.finished", "bar.pulse"} <= {*OWN_STYLES}
    assert {f"progress.{column}" for column in ("download", "elapsed", "remaining")} <= {*OWN_STYLES}


def test_messages_are_wrapped_and_come_after_the_results(tmp_path: Path) -> None:
    """In one file, or in `2>&1 | less`, a hint once came before the table that it is about."""
    code = "from wheelfactory.commands.options import *; print_results('table'); print_messages('hint ' * 30)"
    environ = {"PYTHONPATH": ":".join(sys.path), "COLUMNS": "80", "TERM": "xterm-256color"}
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, stderr=log, check=True, env=environ)
    assert (tmp_path / "log").read_text().split("\n", 1)[0] == "table"
    reader, writer = os.openpty()  # of unknown width, as under `docker exec -t` in a script
    for columns, lengths in (("80", [79, 73]), ("", [150])):
        environ["COLUMNS"] = columns
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=writer, check=True, env=environ)
        assert [len(line) for line in os.read(reader, 1000).decode().splitlines()] == lengths
    os.close(reader)
    os.close(writer)


def test_markdown_is_a_drawn_table_on_a_terminal_and_unchanged_in_a_pipe() -> None:
    lines = ["| arch | GPUs |", "| --- | --- |", f"| gfx1100 | {', '.join(f'Radeon RX 79{n}0' for n in range(10))} |"]
    assert markdown_lines(lines, Console(file=io.StringIO())) == lines
    drawn = markdown_lines(lines, terminal(80))
    assert max(len(COLOUR.sub("", line)) for line in drawn) <= 80
    assert not any("|" in line for line in drawn)


def test_no_color_leaves_the_table_without_colours_and_a_dumb_terminal_gets_plain_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("38;5;28" in line for line in table_lines(TABLE, terminal(80)))
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert table_lines(TABLE, terminal(80)) == PLAIN
    assert wrap_lines([SENTENCE], terminal(80)) == [SENTENCE]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb\x00c\x1b[31m\x9be\rf\u2028", r"a\u202eb\u0000c\u001b[31m\u009be\rf\u2028"),
        ("\u00fcber 2 \u00b5s", "\u00fcber 2 \u00b5s"),
        ("a\tb", "a       b"),
        ("https://me:se@cret@host/a@b http://token@host", "https://***@host/a@b http://***@host"),
        ("https://host/?mail=me@host", "https://host/?mail=me@host"),
    ],
)
def test_what_a_terminal_interprets_or_hides_is_escaped_and_users_in_urls_are_masked(text: str, shown: str) -> None:
    assert as_printable(text) == as_printable(shown) == shown


def test_no_text_forges_a_line() -> None:
    written = io.StringIO()
    write_lines(written, ["a\nhint: b"])
    write_message(written, "error: a\nhint: b\n  c")
    assert written.getvalue() == "a\\nhint: b\nerror: a\n  hint: b\n  c\n"


def test_a_message_is_short() -> None:
    written = io.StringIO()
    write_message(written, "x" * 1_000_000)
    assert len(written.getvalue()) < 11_000


def test_a_sign_that_a_stream_lacks_is_replaced() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    write_lines(stream, ["AMD Radeon\u2122"])
    stream.seek(0)
    assert stream.read() == "AMD Radeon?\n"


def test_a_count_agrees_with_its_noun() -> None:
    assert [count_text(number, "wheel") for number in range(3)] == ["0 wheels", "1 wheel", "2 wheels"]


def test_a_long_list_ends_with_the_number_of_the_others() -> None:
    assert [shorten_names("abcd"[:number]) for number in (0, 3, 4)] == ["", "a, b, c", "a, b, c and 1 more"]
