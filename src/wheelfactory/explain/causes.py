"""Lines of a failed build -> the first real cause and its remedy, by the glossary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from wheelfactory.explain.glossary import KnownCause, glossary
from wheelfactory.explain.log_lines import clean_line

_LONGEST_EVIDENCE = 500
HINT_PREFIX = "hint: "
"""How the line begins that this program says after its error."""
_SHORT = 300
"""Letters of a line for which it is kept whether it may tell a cause: 16,384 of them are 5 MB."""


@dataclass(frozen=True)
class Cause:
    """Why a build failed."""

    name: str
    """The kind, as the glossary names it."""
    evidence: str
    """The line that tells it, cut if it is very long."""
    remedy: str


class CauseFinder:
    """Looks for the cause line by line, for logs that are too large to hold."""

    def __init__(self) -> None:
        self._specific: Cause | None = None
        self._unspecific: Cause | None = None
        self._error = ""

    @property
    def cause(self) -> Cause | None:
        """The cause among the lines seen so far; None if none of them tells one."""
        return self._specific or self._unspecific

    def read_line(self, text: str) -> None:
        """Take the next line, already cleaned."""
        cause = self._specific
        if self._error and text.startswith(HINT_PREFIX) and (cause is None or cause.evidence == self._error):
            # the hint that this program gives right after its error is about this very case
            name = cause.name if cause else "refused by the factory"
            self._specific = Cause(name, self._error, text[len(HINT_PREFIX) :])
        if cause:
            self._error = ""
        if self._specific:
            return
        # the form of this program's errors; what follows may be its hint
        is_ours = text.startswith("error: ") and ": " in text[7:] and not text.startswith("error: build failed")
        self._error = text[:_LONGEST_EVIDENCE] if is_ours else ""
        if not may_show_error(text) or any(word in text for word in glossary().warnings):
            return
        self._specific = _told(glossary().causes, text)
        if not self._specific and not self._unspecific:
            self._unspecific = _told(glossary().generic_causes, text)


def find_cause(lines: Iterable[str]) -> Cause | None:
    """The first real cause in a log's lines, raw or cleaned; None if no line tells one, as in a log without failure.

    What only follows from a cause is passed over: that ninja stopped, that torch's extension was not compiled.
    """
    search = CauseFinder()
    for line in lines:
        search.read_line(clean_line(line).text)
    return search.cause


def may_show_error(text: str) -> bool:
    """Whether a line may tell a cause. Headers warn of the same in each of thousands of files, so answers are kept."""
    return _short_in_trouble(text) if len(text) < _SHORT else any(word in text for word in glossary().error_words)


@lru_cache(maxsize=16_384)
def _short_in_trouble(text: str) -> bool:
    return any(word in text for word in glossary().error_words)


def _told(table: list[KnownCause], text: str) -> Cause | None:
    found = next((known for known in table if known.patterns.search(text)), None)
    return Cause(found.name, text[:_LONGEST_EVIDENCE], found.remedy) if found else None
