"""Markdown escaping: any text is shown literally, and never becomes a link, mention, HTML or list."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from report_rows import BLANK, active, shown, table_rows, tokens
from wheelfactory.site.markdown import code_block, code_span, escape, link, one_line, size_text, table

ANY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    st.text("`|\\ *_[]()<>!#@~&$-+=.:/1a\n", min_size=1, max_size=20),
)


@settings(max_examples=150)
@given(ANY)
@example("1. no list")
@example("- no list")
@example("# no heading")
@example("[a](http://b.example)")
@example("<script>alert(1)</script> &amp; &#64;all")
@example("a\\|b `c` \\")
def test_prose_is_shown_as_it_is_and_does_nothing(text: str) -> None:
    assert active(escape(text)) == []
    assert shown(escape(text)) == one_line(text)


@settings(max_examples=150)
@given(ANY)
@example("`` ` ``")
@example("`")
@example("a\n\nb")
def test_code_is_one_span_whatever_is_in_it(text: str) -> None:
    inline = [token for token in tokens(code_span(text)) if token.type in ("text", "code_inline")]
    assert [token.content for token in inline if token.content] == ([one_line(text)] if one_line(text) else [])
    assert [token.type for token in inline if token.content] == ["code_inline"] * bool(one_line(text))


@settings(max_examples=150)
@given(ANY, ANY)
@example("a|b", "a\\|b")
def test_a_cell_of_a_table_stays_one_cell(one: str, other: str) -> None:
    rows = table_rows("\n".join(table(("a", "b"), [(escape(one), code_span(other))])))
    assert [[cell.replace("\u200b", "") for cell in row] for row in rows[1:]] == [[one_line(one), one_line(other)]]


def test_no_mention_no_reference_and_no_link_of_githubs_is_left_after_escapes_are_read() -> None:
    for text in ("@octocat", "a@b.example", "see @org/team", "#12", "owner/repo#12"):
        read = "".join(token.content for token in tokens(escape(text)) if token.type in ("text", "text_special"))
        assert re.search(f"[@#]{BLANK}", read)
        assert not re.search(r"[@#]\w", read)
    for text in ("https://evil.example/", "www.evil.example", "WWW.evil.example", "ftp://x"):
        assert not re.search(r"://|(?i:www\.)", escape(text))
    assert one_line(" a\u202eb\n\tc") == r"a\u202eb c", "single blanks, and what is invisible is escaped"


def test_a_link_leads_to_a_file_or_a_page_only() -> None:
    cases: list[tuple[str, str]] = [
        ("https://host.example/a%2Bb.whl#sha256=0a", "[wheel](https://host.example/a%2Bb.whl#sha256=0a)"),  # web
        ("wheels/a%2Bb.whl", "[wheel](wheels/a%2Bb.whl)"),  # relative
        ("https://h.example/a) [b](javascript:x)", "[wheel](https://h.example/a%29%20%5Bb%5D%28javascript:x%29)"),
        ("javascript:alert(1)", "wheel"),  # script
        ("https://[", "wheel"),  # none
        ("", "wheel"),  # empty
    ]
    for address, shown_as in cases:
        assert link("wheel", address) == shown_as


@settings(max_examples=100)
@given(st.lists(ANY, min_size=1, max_size=3))
@example(["```", "rm -rf /"])
def test_no_line_ends_the_block_of_code_it_is_in(lines: list[str]) -> None:
    (block,) = [token for token in tokens("\n".join(code_block(lines))) if token.type != "inline"]
    assert block.content == "".join(f"{one_line(line)}\n" for line in lines)


def test_sizes_are_in_thousands() -> None:
    texts = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 123_456: "123 kB", 1_234_567: "1.2 MB", 2**31: "2.1 GB"}
    assert {size: size_text(size) for size in texts} == texts
