"""A page is at most two screens, so that a reader finds its answer; a screen is 350 words, or 55 lines."""

from __future__ import annotations

import re

from docs.pages import Page, pages

WORDS, LINES = 2 * 350, 2 * 55

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_WORD = re.compile(r"\w")


def screens(text: str) -> float:
    """Return the length of a page in screens, without its marks."""
    shown = _COMMENT.sub("", text)
    words = sum(bool(_WORD.search(word)) for word in shown.split())
    return 2 * max(words / WORDS, len(shown.strip().splitlines()) / LINES)


def test_a_page_is_at_most_two_screens() -> None:
    lengths = {page.path: screens(page.text) for page in pages() if page.path.startswith("docs/")}
    assert {path: length for path, length in lengths.items() if length > 2} == {}


def test_marks_and_lines_of_tables_are_no_words() -> None:
    assert screens("<!-- page needs:\nwheelhouse -->\n" + "word - | --- |\n" * 10) == 2 * 10 / LINES
    assert screens("word " * 700) == 2
    assert screens(Page("docs/index.md").text) < 2
