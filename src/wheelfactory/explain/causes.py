"""Find the first real cause of a failed build in its log, with the remedy from the glossary."""

from __future__ import annotations

import re
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
# suggested if the log does not show how many ran: fits 8 GiB with Debian's compiler (1.4 GiB a job)
_JOBS_THAT_FIT = 4
_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Cause:
    """Why a build failed."""

    name: str
    """The kind of failure, from the glossary."""
    evidence: str
    """The log line that shows it, truncated if very long."""
    remedy: str


@dataclass(frozen=True)
class _Match:
    """The kind of failure that a line shows."""

    known: KnownCause
    evidence: str


class CauseFinder:
    """Finds the cause line by line, for logs that do not fit in memory."""

    def __init__(self) -> None:
        self._specific: _Match | None = None
        self._unspecific: _Match | None = None
        self._error = ""

    def cause(self, jobs: int | None = None, *, is_cuda: bool = False) -> Cause | None:
        """The cause in the lines read so far, with its remedy for a build with `jobs` compiles at once (None: unknown).

        None if the lines show no cause.
        """
        match = self._specific or self._unspecific
        if match is None:
            return None
        name = match.known.cuda_name if is_cuda and match.known.cuda_name else match.known.name
        return Cause(name, match.evidence, _remedy(match.known, jobs, is_cuda=is_cuda))

    def read_line(self, text: str) -> None:
        """Read the next line, already cleaned."""
        match = self._specific
        if self._error and text.startswith(HINT_PREFIX) and (match is None or match.evidence == self._error):
            # this program prints the hint for an error on the next line; it is more specific than the glossary
            name = match.known.name if match else "refused by the factory"
            hint = KnownCause(name=name, patterns=_NEVER, remedy=text[len(HINT_PREFIX) :])
            self._specific = _Match(hint, self._error)
        if match:
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
    return search.cause()


def _remedy(known: KnownCause, jobs: int | None, *, is_cuda: bool) -> str:
    """The remedy; for too little memory, suggest half of the MAX_JOBS that failed."""
    if known.remedy == glossary().remedies["fewer jobs"] and jobs == 1:
        return glossary().remedies["more memory"]
    remedy = known.cuda_remedy if is_cuda and known.cuda_remedy else known.remedy
    return remedy.replace("{jobs}", str(max(1, jobs // 2) if jobs else _JOBS_THAT_FIT))


def may_show_error(text: str) -> bool:
    """Whether a line can show a cause: a fast check before the regular expressions."""
    # cached, because headers print the same warnings for each of thousands of files
    return (
        _short_line_may_show_error(text) if len(text) < _SHORT else any(word in text for word in glossary().error_words)
    )


@lru_cache(maxsize=16_384)
def _short_line_may_show_error(text: str) -> bool:
    return any(word in text for word in glossary().error_words)


def _find_known(table: list[KnownCause], text: str) -> _Match | None:
    found = next((known for known in table if known.patterns.search(text)), None)
    return _Match(found, text[:_LONGEST_EVIDENCE]) if found else None
