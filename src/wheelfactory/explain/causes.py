"""Find the first real cause of a failed build in its log, with the remedy from the glossary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from wheelfactory.explain.glossary import KnownCause, glossary
from wheelfactory.explain.log_lines import clean_line

_LONGEST_EVIDENCE = 500
HINT_PREFIX = "hint: "
"""Prefix of the line that this program prints after its own ``error:`` line."""
# longest line that is cached, in characters: 16,384 such lines take 5 MB
_SHORT = 300


@dataclass(frozen=True)
class Cause:
    """Why a build failed."""

    name: str
    """The kind of failure, from the glossary."""
    evidence: str
    """The log line that shows it, truncated if very long."""
    remedy: str


class CauseFinder:
    """Finds the cause line by line, for logs that do not fit in memory."""

    def __init__(self) -> None:
        self._specific: Cause | None = None
        self._unspecific: Cause | None = None
        self._error = ""

    @property
    def cause(self) -> Cause | None:
        """The cause in the lines read so far; None if they show none."""
        return self._specific or self._unspecific

    def read_line(self, text: str) -> None:
        """Read the next line, already cleaned."""
        cause = self._specific
        if self._error and text.startswith(HINT_PREFIX) and (cause is None or cause.evidence == self._error):
            # this program prints the hint for an error on the next line; it is more specific than the glossary
            name = cause.name if cause else "refused by the factory"
            self._specific = Cause(name, self._error, text[len(HINT_PREFIX) :])
        if cause:
            self._error = ""
        if self._specific:
            return
        # this program's error format; the next line may be its hint
        is_ours = text.startswith("error: ") and ": " in text[7:] and not text.startswith("error: build failed")
        self._error = text[:_LONGEST_EVIDENCE] if is_ours else ""
        if not may_show_error(text) or any(word in text for word in glossary().warnings):
            return
        self._specific = _find_known(glossary().causes, text)
        if not self._specific and not self._unspecific:
            self._unspecific = _find_known(glossary().generic_causes, text)


def find_cause(lines: Iterable[str]) -> Cause | None:
    """Return the first real cause in a log's lines, raw or cleaned; None if no line shows one.

    Skips consequences of a cause, such as ``ninja: build stopped``.
    """
    search = CauseFinder()
    for line in lines:
        search.read_line(clean_line(line).text)
    return search.cause


def may_show_error(text: str) -> bool:
    """Whether a line can show a cause: a fast check before the regular expressions."""
    # cached, because headers print the same warnings for each of thousands of files
    return (
        _short_line_may_show_error(text) if len(text) < _SHORT else any(word in text for word in glossary().error_words)
    )


@lru_cache(maxsize=16_384)
def _short_line_may_show_error(text: str) -> bool:
    return any(word in text for word in glossary().error_words)


def _find_known(table: list[KnownCause], text: str) -> Cause | None:
    found = next((known for known in table if known.patterns.search(text)), None)
    return Cause(found.name, text[:_LONGEST_EVIDENCE], found.remedy) if found else None
