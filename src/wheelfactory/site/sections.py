"""Sections of a text that has a limit: rows are cut from the last ones, and what was cut is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wheelfactory.release.manifest import MANIFEST_NAME


@dataclass(frozen=True)
class Section:
    """A part of a text; where that is too long, `rows` are cut from their end and counted, the rest stays."""

    head: tuple[str, ...]
    rows: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    cut: int = 0

    def text(self) -> str:
        """The part as Markdown, with a line for what was cut."""
        told = ("", f"{self.cut} more are not shown here; `{MANIFEST_NAME}` names them all.") if self.cut else ()
        return "\n".join([*self.head, *self.rows, *told, *self.tail, ""])


def fitted(sections: Sequence[Section], limit: int) -> str:
    """All sections as one text, of at most `limit` characters as far as cutting rows, the last first, can do that.

    A character counts as its bytes in UTF-8, which no count of characters exceeds.
    """
    kept = list(sections)
    over = sum(_size(section.text()) + 1 for section in kept) - 1 - limit
    for position in reversed(range(len(kept))):
        if over > 0 and kept[position].rows:
            before = _size(kept[position].text())
            kept[position] = _cut(kept[position], over)
            over -= before - _size(kept[position].text())
    return "\n".join(section.text() for section in kept)


def _cut(section: Section, over: int) -> Section:
    """The section with so many rows fewer that it is `over` bytes shorter, or with none."""
    count = len(section.rows)
    over += _size(replace(section, cut=count).text()) - _size(section.text())  # what the line about it takes
    kept = count
    while over > 0 and kept:
        kept -= 1
        over -= _size(section.rows[kept]) + 1
    return replace(section, rows=section.rows[:kept], cut=count - kept)


def _size(text: str) -> int:
    return len(text.encode("utf-8"))
