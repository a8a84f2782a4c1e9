"""Write Markdown for GitHub. Text from data or users is escaped, so that it cannot create markup, links or mentions.

A text with a size limit consists of sections, whose rows can be cut.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from wheelfactory.core.gpus import product_names
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.core.wrap import as_printable

# what starts markup anywhere in a line, and what GitHub turns into links
_SPECIAL = re.compile(r"[\\`*_\[\]<>&~$!]|(?<=:)//|(?<=www)\.", re.IGNORECASE)
# what starts a list or a heading at the start of a line
_BLOCK = re.compile(r"^(?:[-+=]|[0-9]+(?=[.)](?:\s|$)))")
# not quoted in an address, beside letters, digits and ``_.-``. Brackets and quotes are: they end a link
_ADDRESS_CHARACTERS = ":/?#@!$&*+,;=%~"


def one_line(text: str) -> str:
    """Text on one line, with single blanks; invisible and direction-changing characters are escaped."""
    return as_printable(" ".join(text.split()))


def code_span(text: str) -> str:
    """Text as a code span, in which GitHub finds no links, mentions, references or HTML. Empty for empty text."""
    line = one_line(text)
    if not line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    blank = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{blank}{line}{blank}{fence}"


def escape(text: str) -> str:
    """Escape text for use in a sentence."""
    line = _SPECIAL.sub(lambda match: "\\" + match[0], one_line(text))
    line = _BLOCK.sub(lambda match: match[0] + "\\" if match[0].isdigit() else "\\" + match[0], line)
    # a zero-width space, because GitHub looks for mentions and references after removing escapes
    return re.sub("[@#]", lambda match: f"{match[0]}&#8203;", line)


def link(text: str, address: str) -> str:
    """Markdown `text` as a link; unchanged if the address is neither a file nor a web page."""
    try:
        known = urlsplit(address).scheme in ("", "http", "https", "file")
    except ValueError:
        known = False
    return f"[{text}]({quote(one_line(address), safe=_ADDRESS_CHARACTERS)})" if known and address else text


def table_row(cells: Iterable[str]) -> str:
    """A table row of Markdown cells."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [table_row(header), table_row("---" for _ in header), *(table_row(cells) for cells in rows)]


def code_block(lines: Iterable[str]) -> list[str]:
    """Lines as a fenced block of shell code."""
    shown = [one_line(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    marks = "`" * max(3, longest + 1)
    return [f"{marks}bash", *shown, marks]


def details(summary: str, lines: Iterable[str]) -> list[str]:
    """Lines in a folded ``<details>`` element. `summary` is not escaped: it must not come from data."""
    return [f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def gpu_text(arch: str) -> str:
    """The products of an offload arch, as Markdown."""
    return escape(product_names(arch)) or "no product names known"


def size_text(size: int) -> str:
    """A size in bytes as kB, MB or GB (powers of 1000, as in matrix.yaml)."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}" if size < 100 * scale else f"{size / scale:.0f} {unit}"
    return f"{size} B"


@dataclass(frozen=True)
class MarkdownSection:
    """A section of a text. To shorten the text, `rows` are cut from the end; head and tail always stay."""

    head: tuple[str, ...]
    rows: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()

    def text(self, kept: int) -> str:
        """The section with its first `kept` rows as Markdown, with a line about the rows that were cut."""
        cut = len(self.rows) - kept
        omitted = ("", f"{cut} more are not shown; see `{MANIFEST_NAME}`.") if cut else ()
        return "\n".join([*self.head, *self.rows[:kept], *omitted, *self.tail, ""])


def fit_sections(sections: Sequence[MarkdownSection], limit: int) -> str:
    """Join sections into at most `limit` UTF-8 bytes, by cutting rows from the last sections first.

    The result is longer than `limit` if the text without any rows is.
    """

    def text(kept: int) -> str:
        texts = []
        for section in sections:
            texts.append(section.text(min(kept, len(section.rows))))
            kept = max(kept - len(section.rows), 0)
        return "\n".join(texts)

    def size(kept: int) -> int:
        return len(text(kept).encode())

    rows = sum(len(section.rows) for section in sections)
    fitting = rows if size(rows) <= limit else bisect_right(range(rows), limit, key=size) - 1
    return text(max(fitting, 0))
