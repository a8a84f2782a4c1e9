"""The Markdown files of the repository, read as GitHub reads them: headings, links, code, and marks of code blocks.

A mark is an HTML comment in the line before a block, which no reader sees:

    <!-- not executed: needs ROCm -->     why no test runs the block; the reasons are `REASONS`
    <!-- exit code 5 -->                  what the block ends with
    <!-- file NAME -->                    the block is written to NAME
    <!-- insert into NAME -->             the block goes into NAME, behind the line that is its first
    <!-- page needs: wheelhouse -->       anywhere: what the first command of the page finds ready
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

from wheelfactory.core.files import ROOT

REASONS = (
    "needs an AMD GPU",
    "needs ROCm",
    "needs GitHub",
    "needs a container engine",
    "needs another host",  # such as Docker Hub; tests reach PyPI and nothing else
    "takes hours",
    "runs these tests",
    "changes the machine",
)
"""Why a block is not executed; beside these, ``executed by tests/PATH.py::NAME``."""

COMMANDS = ("bash", "sh", "console")
DATA = ("toml", "yaml")

_MARK = re.compile(r"<!-- (not executed: |exit code |file |insert into )(.+) -->")
_NEEDS = re.compile(r"^<!-- page needs: (.+) -->$", re.MULTILINE)
_HTML_LINK = re.compile(r"(?:src|href)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    """That of the opening fence, from 1."""
    language: str
    text: str
    before: str
    """The line before the block."""

    @property
    def place(self) -> str:
        """As messages name it."""
        return f"{self.page}:{self.line}"

    def mark(self, kind: str) -> str | None:
        """What the mark before the block says, if it is of that kind."""
        found = _MARK.fullmatch(self.before)
        return found[2] if found and found[1].strip(": ") == kind else None

    @property
    def has_unknown_mark(self) -> bool:
        """Whether there is a comment before it that is no mark."""
        return self.before.startswith("<!--") and not (_MARK.fullmatch(self.before) or _NEEDS.match(self.before))

    @property
    def is_executed(self) -> bool:
        """Whether a test runs it."""
        return self.language in COMMANDS and self.mark("not executed") is None


@dataclass(frozen=True)
class Page:
    """A Markdown file, by its path from the root."""

    path: str

    @cached_property
    def text(self) -> str:
        """All of it."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Its fenced blocks."""
        lines = ["", *self.text.splitlines()]
        return tuple(
            Block(self.path, token.map[0] + 1, token.info, token.content, lines[token.map[0]])
            for token in self._tokens
            if token.type == "fence" and token.map
        )

    @cached_property
    def headings(self) -> tuple[tuple[int, str], ...]:
        """Level and text of each heading."""
        return tuple(
            (int(head.tag[1:]), _plain(text)) for head, text in pairwise(self._tokens) if head.type == "heading_open"
        )

    @cached_property
    def anchors(self) -> frozenset[str]:
        """The anchors that GitHub gives the headings."""
        seen: Counter[str] = Counter()
        found = set()
        for _, text in self.headings:
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
        return frozenset(found)

    @cached_property
    def links(self) -> tuple[str, ...]:
        """Where its links and pictures lead, as written."""
        written = (str(token.attrGet("href") or token.attrGet("src") or "") for token in self._inline())
        html = (token.content for token in [*self._tokens, *self._inline()] if token.type.startswith("html_"))
        return tuple(filter(None, [*written, *(link for text in html for link in _HTML_LINK.findall(text))]))

    @cached_property
    def spans(self) -> tuple[str, ...]:
        """The code within its sentences."""
        return tuple(token.content for token in self._inline() if token.type == "code_inline")

    @property
    def needs(self) -> tuple[str, ...]:
        """What its commands find ready."""
        return tuple(name for found in _NEEDS.findall(self.text) for name in found.split(", "))

    @cached_property
    def _tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").enable("table").parse(self.text)

    def _inline(self) -> Iterator[Token]:
        return (child for token in self._tokens for child in token.children or ())


def _plain(inline: Token) -> str:
    return "".join(token.content for token in inline.children or () if token.type in ("text", "code_inline"))


@cache
def repository_files() -> frozenset[str]:
    """Every file of the repository: tracked, or new and not ignored."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    return frozenset(name for name in names if name and (ROOT / name).is_file())


@cache
def pages() -> tuple[Page, ...]:
    """Every Markdown file of the repository."""
    return tuple(Page(name) for name in sorted(repository_files()) if name.endswith(".md"))
