"""Lines of a log from any source: terminal, file, GitHub, or a paste."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfactory.core.errors import InputError
from wheelfactory.explain.log_lines import (
    CHUNK,
    MAX_LINE_BYTES,
    LogLine,
    clean_line,
    is_wall_clock,
    join_split_commands,
    read_log_lines,
)


def texts(raw: bytes) -> list[str]:
    return [line.text for line in read_log_lines(io.BytesIO(raw), "build.log")]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("plain", "[1/2] hipcc"),
        ("pip indents", "      [1/2] hipcc"),
        ("colours", "\x1b[36;1m[1/2] \x1b[0mhipcc\x1b[K"),
        ("terminal title", "\x1b]0;building\x07[1/2] hipcc"),
        ("GitHub", "2026-11-21T19:00:00.1234567Z [1/2] hipcc"),
        ("GitHub with a byte order mark", "\ufeff2026-11-21T19:00:00.1234567Z [1/2] hipcc"),
        ("gh run view --log", "build\tCompile kernels\t2026-11-21T19:00:00.1234567Z [1/2] hipcc"),
        ("docker --timestamps", "2026-11-21T19:00:00.123456789Z [1/2] hipcc"),
        ("zone", "2026-11-21T20:00:00+01:00 [1/2] hipcc"),
        ("Python's logging", "2026-11-21 19:00:00,123 [1/2] hipcc"),
        ("BuildKit", "#12 10.47 [1/2] hipcc"),
        ("BuildKit within a CI job", "2026-11-21T19:00:00.1234567Z #12 10.47 [1/2] hipcc"),
        ("BuildKit's summary", "10.47 [1/2] hipcc"),
    ],
    ids=lambda text: None if "hipcc" in text else text,
)
def test_what_surrounds_a_line_is_taken_off(raw: str, text: str) -> None:
    assert clean_line(text).text == "[1/2] hipcc"


def test_nothing_is_left_that_a_terminal_would_obey() -> None:
    assert clean_line("\x1b]0;title\x07a\x08\x9b2Jb\tc\x1b").text == "a2Jb\tc"


def test_a_time_in_front_of_a_line_is_kept() -> None:
    first, second = clean_line("2026-11-21T19:00:00.5Z a").time, clean_line("2026-11-21 19:01:00,5 b").time
    assert first
    assert second
    assert second - first == 60
    assert is_wall_clock(first)


def test_seconds_since_a_step_began_are_a_time_but_no_clock() -> None:
    line = clean_line("#12 10.47 text")
    assert line == LogLine("text", 10.47)
    assert not is_wall_clock(10.47)


@pytest.mark.parametrize("text", ["10.47GB free", "3.5 GiB", "2026-11-21", "2.8.3 is built"])
def test_a_number_that_only_begins_a_sentence_is_no_time(text: str) -> None:
    assert clean_line(text) == LogLine(text, None)


def test_a_time_that_cannot_be_is_not_a_crash() -> None:
    assert clean_line("2026-13-41T29:61:61Z text") == LogLine("text", None)


def test_within_a_ci_job_the_clock_counts_and_not_the_seconds_of_a_step() -> None:
    time = clean_line("2026-11-21T19:00:00Z #12 10.47 text").time
    assert time
    assert is_wall_clock(time)


WRAPPED = ["[1/2] /opt/rocm/bin/hipcc -Ia", "-Ib -c", "/w/a.hip -o", "/w/a.o -mllvm", "-x=1", "'-DA=\"b\"'"]


def test_a_command_that_was_pasted_in_several_lines_is_one_line() -> None:
    whole = " ".join(WRAPPED)
    for pasted in (WRAPPED, [f"{part} \\" for part in WRAPPED[:-1]] + WRAPPED[-1:]):
        lines = list(join_split_commands(LogLine(text) for text in ["before", *pasted, "1 warning generated"]))
        assert [line.text.replace("  ", " ") for line in lines] == ["before", whole, "1 warning generated"]


def test_only_a_compile_command_is_put_together() -> None:
    lines = [
        LogLine(text) for text in ("usage: setup.py", "-h help", "a \\", "b", "/bin/hipcc -c a.hip -o a.o", "- item")
    ]
    assert list(join_split_commands(lines)) == lines


def test_progress_that_is_written_over_itself_is_many_lines() -> None:
    assert texts(b"[1/2] a\r[2/2] b\r\n\r\nend") == ["[1/2] a", "[2/2] b", "end"]


def test_lines_are_whole_wherever_the_reader_stops_for_breath() -> None:
    lines = [f"line {number} of a long log" for number in range(3 * CHUNK // 20)]
    assert texts("\r\n".join(lines).encode()) == lines


def test_bytes_that_are_no_utf_8_do_not_stop_it() -> None:
    assert texts(b"caf\xe9\nnext") == ["caf\ufffd", "next"]


def test_a_log_of_any_size_takes_little_memory() -> None:
    class Endless(io.RawIOBase):
        left = 64 << 20

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            self.left -= CHUNK
            return b"x" * CHUNK if self.left > 0 else b""

    tracemalloc.start()
    longest = max(len(line.text) for line in read_log_lines(Endless(), "build.log"))  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert longest == MAX_LINE_BYTES
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("start", "reason"),
    [(b"PK\x03\x04", "zip"), (b"\x1f\x8b\x08", "gzip"), (b"\x7fELF\0\0", "not text"), ("ä\n".encode("utf-16"), "text")],
    ids=["zip", "gzip", "library", "UTF-16"],
)
def test_what_is_no_text_is_refused(start: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=f"not a log: build.log is .*{reason}") as caught:
        texts(start)
    assert caught.value.hint


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_no_text_stops_it(parts: list[str]) -> None:
    lines: Iterator[LogLine] = read_log_lines(io.BytesIO("\n".join(parts).encode()), "build.log")
    assert all(line.text.strip() == line.text != "" for line in lines)
