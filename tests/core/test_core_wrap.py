"""Text for people: nothing in it can control a terminal, and counts agree with their nouns."""

from __future__ import annotations

import io

import pytest

from wheelfactory.core.wrap import as_printable, count_text, shorten_names, write_lines, write_message


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
