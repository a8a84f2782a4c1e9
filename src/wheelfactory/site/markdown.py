"""Text -> Markdown as GitHub reads it: what comes from data or from a person is shown as it is, and does nothing.

A text that has a limit is made of sections: rows are cut from the last ones, and what was cut is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

from wheelfactory.core.gpus import product_names
from wheelfactory.release.manifest import MANIFEST_NAME

_SPECIAL = re.compile(r"[\\`*_\[\]<>&~$!]|(?<=:)//|(?<=www)\.", re.IGNORECASE)
"""What begins markup anywhere in a line, and what GitHub makes a link of."""
_BLOCK = re.compile(r"^(?:[-+=]|[0-9]+(?=[.)](?:\s|$)))")
"""What begins a list or a heading where a line begins."""
_LINKED_SCHEMES = ("", "http", "https", "file")
_ADDRESS_CHARACTERS = ":/?#@!$&*+,;=%~"
"""What is left as it is in an address, beside letters, digits and ``_.-``; brackets and quotes end a link."""


def one_line(text: str) -> str:
    """Text without line ends, runs of blanks, or characters that show nothing or turn the direction of writing."""
    shown = "".join(c if c.isprintable() or c.isspace() else "?" for c in text)
    return " ".join(shown.split())


def code_span(text: str) -> str:
    """Text as a code span: GitHub sees no link, mention, reference or HTML in one. Empty for empty text."""
    line = one_line(text)
    if not line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    blank = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{blank}{line}{blank}{fence}"


def escape(text: str) -> str:
    """Text as a part of a sentence, escaped.

    A zero-width blank follows ``@`` and ``#``, because GitHub looks for mentions and references after escapes are gone.
    """
    line = _SPECIAL.sub(lambda match: "\\" + match[0], one_line(text))
    line = _BLOCK.sub(lambda match: match[0] + "\\" if match[0].isdigit() else "\\" + match[0], line)
    return re.sub("[@#]", lambda match: f"{match[0]}&#8203;", line)


def link(text: str, address: str) -> str:
    """`text`, which is Markdown, as a link; as it is if the address is not one of a file or a web page."""
    try:
        known = urlsplit(address).scheme in _LINKED_SCHEMES
    except ValueError:
        known = False
    return f"[{text}]({quote(one_line(address), safe=_ADDRESS_CHARACTERS)})" if known and address else text


def table_row(cells: Iterable[str]) -> str:
    """A line of a table; each cell is Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table as lines."""
    return [table_row(header), table_row("---" for _ in header), *(table_row(cells) for cells in rows)]


def code_block(lines: Iterable[str]) -> list[str]:
    """Lines as a block of code for a shell."""
    shown = [one_line(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    marks = "`" * max(3, longest + 1)
    return [f"{marks}bash", *shown, marks]


def details(summary: str, lines: Iterable[str]) -> list[str]:
    """Lines that are folded until a person opens them; `summary` is a text of ours, without markup."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def gpu_text(arch: str) -> str:
    """The products of an offload arch."""
    return escape(product_names(arch)) or "not known by name"


def size_text(size: int) -> str:
    """A size in bytes for a person, in units of 1000 as matrix.yaml has them."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}" if size < 100 * scale else f"{size / scale:.0f} {unit}"
    return f"{size} B"


def count_text(number: int, thing: str) -> str:
    """``1 wheel``, ``2 wheels``."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


@dataclass(frozen=True)
class MarkdownSection:
    """A part of a text; where that is too long, `rows` are cut from their end and counted, the rest stays."""

    head: tuple[str, ...]
    rows: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    cut: int = 0

    def text(self) -> str:
        """The part as Markdown, with a line for what was cut."""
        told = ("", f"{self.cut} more are not shown here; `{MANIFEST_NAME}` names them all.") if self.cut else ()
        return "\n".join([*self.head, *self.rows, *told, *self.tail, ""])


def fit_sections(sections: Sequence[MarkdownSection], limit: int) -> str:
    """All sections as one text, of at most `limit` characters as far as cutting rows, the last first, can do that.

    A character counts as its bytes in UTF-8, which no count of characters exceeds.
    """
    kept = list(sections)
    over = sum(_size(section.text()) + 1 for section in kept) - 1 - limit
    for position in reversed(range(len(kept))):
        if over > 0 and kept[position].rows:
            whole = kept[position]
            kept[position] = _cut(whole, over)
            over -= _size(whole.text()) - _size(kept[position].text())
    return "\n".join(section.text() for section in kept)


def _cut(section: MarkdownSection, over: int) -> MarkdownSection:
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
