"""Rows of tiny real wheels, and Markdown parsed as GitHub parses it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from release_factory import additions, flash_attn_wheel, stub_wheel
from wheelfactory.release.manifest import WheelRow

BLANK = "\u200b"
"""The zero-width space that keeps GitHub from seeing a mention."""

_READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def rows_of(folder: Path, cells: Iterable[str], **changed: object) -> tuple[WheelRow, ...]:
    """Rows of these cells' wheels with a realistic size; `changed` applies to every row."""
    rows = [row for row, _ in additions(flash_attn_wheel(folder, cell) for cell in cells)]
    return tuple(row.model_copy(update={"size": 1_234_567, **changed}) for row in rows)


def einops_row(folder: Path) -> WheelRow:
    """The row of a dependency."""
    ((row, _),) = additions([stub_wheel(folder, "einops", "0.8.2")])
    return row


def tokens(markdown: str) -> list[Token]:
    """Every token, block and inline."""
    return [token for block in _READER.parse(markdown) for token in (block, *(block.children or ()))]


def shown(markdown: str) -> str:
    """The visible text, without zero-width spaces."""
    return "".join(token.content for token in tokens(markdown) if token.type in _TEXTS).replace(BLANK, "")


_TEXTS = ("text", "text_special", "code_inline")


def active(markdown: str) -> list[str]:
    """The active markup of a text: links, HTML, emphasis, headings, lists."""
    plain = (*_TEXTS, "inline", "paragraph_open", "paragraph_close")
    return [token.type for token in tokens(markdown) if token.type not in plain]


def table_rows(markdown: str) -> list[list[str]]:
    """The visible cells of every table row, headers included."""
    rows: list[list[str]] = []
    cell = False
    for token in _READER.parse(markdown):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and cell:
            rows[-1].append("".join(child.content for child in token.children or () if child.type in _TEXTS))
        cell = token.type in ("th_open", "td_open")
    return rows


def code_lines(markdown: str) -> list[str]:
    """The lines of the blocks of code."""
    return [line for token in tokens(markdown) if token.type == "fence" for line in token.content.splitlines()]
