"""Text for people: nothing in it can control a terminal, and counts agree with their nouns."""

from __future__ import annotations

from wheelfactory.core.wrap import as_printable, count_text


def test_what_a_terminal_interprets_or_hides_is_escaped() -> None:
    assert as_printable("a\u202eb\x00c\x1b[31m\td\ne") == r"a\u202eb\x00c\x1b[31m\td\ne"
    assert as_printable("\u00fcber 2 \u00b5s") == "\u00fcber 2 \u00b5s"


def test_a_count_agrees_with_its_noun() -> None:
    assert [count_text(number, "wheel") for number in range(3)] == ["0 wheels", "1 wheel", "2 wheels"]
