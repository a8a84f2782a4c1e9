"""Find the first real cause of a failure in its text, with the next step from the table of symptoms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from wheelfactory.explain.glossary import Entry, Pattern, Text, read_table
from wheelfactory.explain.log_lines import clean_line

_LONGEST_EVIDENCE = 500
DEFAULT_FACTS = {"torch": "your torch", "flash-attn": "this flash-attn", "gpu": "this GPU"}
"""What the texts say for facts that a log does not have."""
HINT_PREFIX = "hint: "
"""Prefix of the line that this program prints after its own ``error:`` line."""
# characters at each end of a longer line that the patterns see, whose time can grow with the cube of its length: a
# cause stands before or after a quoted command
_END = 600
# longest line that is cached, in characters: 16,384 such lines take 5 MB
_SHORT = 300
# suggested if the log does not show how many ran: fits 8 GiB with Debian's compiler (1.4 GiB a job)
_JOBS_THAT_FIT = 4
_NEVER = re.compile(r"(?!)")


TextKind = Literal["build", "pip", "import", "run time", "container"]
"""The kinds of text that have symptoms; ``pip`` also stands for uv."""


class Symptom(Entry):
    """A kind of failure."""

    name: Text
    kind: TextKind = "build"
    """The kind of text that shows it."""
    patterns: Pattern
    """Searched anywhere in a line."""
    context: list[Text] = Field(default_factory=list)
    """The text up to this line must contain at least one of these; empty for no condition."""
    cause: str = ""
    """Why it happens; empty if the name says it."""
    remedy: Text
    """The next step. Names in braces in the texts are groups of the pattern and facts of the log."""
    cuda_name: str = ""
    cuda_remedy: str = ""
    """Name and remedy for a build for CUDA, if they differ."""
    wheel: bool = True
    """Whether a prebuilt wheel makes what failed unnecessary, or right."""


class SymptomTable(Entry):
    """The whole file; its comments describe each part."""

    remedies: dict[Text, Text]
    symptoms: list[Symptom]
    generic_symptoms: list[Symptom]
    remarks: list[Symptom]
    error_words: Annotated[list[Text], Field(min_length=1)]
    warnings: Pattern

    @property
    def ranks(self) -> tuple[list[Symptom], ...]:
        """The lists, best first: a symptom of a better list replaces that of an earlier line."""
        return self.symptoms, self.generic_symptoms, self.remarks

    @property
    def context_words(self) -> frozenset[str]:
        """All words of a `Symptom.context`."""
        return frozenset(word for known in chain(*self.ranks) for word in known.context)


@cache
def symptom_table() -> SymptomTable:
    """Return the table of this package."""
    return read_table(Path(__file__).with_name("symptoms.yaml"), SymptomTable)


@dataclass(frozen=True)
class Cause:
    """Why something failed."""

    name: str
    """The kind of failure, from the table of symptoms."""
    evidence: str
    """The log line that shows it, truncated if very long."""
    remedy: str
    reason: str = ""
    """Why it happens; empty if the name says it."""
    kind: TextKind = "build"
    """The kind of text that shows it."""
    wheel: bool = True
    """Whether a prebuilt wheel makes what failed unnecessary, or right."""


@dataclass(frozen=True)
class _Match:
    """The kind of failure that a line shows."""

    known: Symptom
    evidence: str
    groups: Mapping[str, str] = field(default_factory=dict)
    """The named groups of the pattern."""


class CauseFinder:
    """Finds the cause line by line, for logs that do not fit in memory."""

    def __init__(self) -> None:
        self._match: _Match | None = None
        self._rank = len(symptom_table().ranks)
        """The list of the match; that many lists are better."""
        self._error = ""
        self._unseen = set(symptom_table().context_words)
        self._seen: set[str] = set()

    def cause(
        self, jobs: int | None = None, facts: Mapping[str, str] | None = None, *, is_cuda: bool = False
    ) -> Cause | None:
        """The cause in the lines read so far, with its remedy for a build with `jobs` compiles at once (None: unknown).

        `facts` replace their names in braces in the texts of the table. None if the lines show no cause.
        """
        match = self._match
        if match is None:
            return None
        known = match.known
        name = known.cuda_name if is_cuda and known.cuda_name else known.name
        values = {**DEFAULT_FACTS, **(facts or {}), **match.groups}
        remedy = _fill(_remedy(known, jobs, is_cuda=is_cuda), values)
        return Cause(name, match.evidence, remedy, _fill(known.cause, values), known.kind, known.wheel)

    def read_context(self, text: str) -> None:
        """Read a line that shows no cause, such as a compile command, for the context of later ones."""
        found = {word for word in self._unseen if word in text}
        self._seen |= found
        self._unseen -= found

    def read_line(self, text: str) -> None:
        """Read the next line, already cleaned."""
        self.read_context(text)
        match = None if self._rank else self._match
        if self._error and text.startswith(HINT_PREFIX) and (match is None or match.evidence == self._error):
            # this program prints the hint for an error on the next line; it is more specific than the table
            name = match.known.name if match else "refused by the factory"
            hint = Symptom(name=name, patterns=_NEVER, remedy=text[len(HINT_PREFIX) :])
            self._match, self._rank = _Match(hint, self._error), 0
        if match:
            self._error = ""
        if not self._rank:
            return
        # this program's error format; the next line may be its hint
        is_ours = text.startswith("error: ") and ": " in text[7:] and not text.startswith("error: build failed")
        self._error = text[:_LONGEST_EVIDENCE] if is_ours else ""
        if not may_show_error(text):
            return
        ranks = symptom_table().ranks
        first = len(ranks) - 1 if symptom_table().warnings.search(text) else 0
        text = text if len(text) <= 2 * _END else f"{text[:_END]} {text[-_END:]}"
        for rank in range(first, self._rank):
            found = self._find_known(ranks[rank], text)
            if found:
                self._match, self._rank = found, rank
                return

    def _find_known(self, table: list[Symptom], text: str) -> _Match | None:
        for known in table:
            match = known.patterns.search(text)
            if match and (not known.context or not self._seen.isdisjoint(known.context)):
                groups = {name: value or "" for name, value in match.groupdict().items()}
                return _Match(known, text[:_LONGEST_EVIDENCE], groups)
        return None


def find_cause(lines: Iterable[str]) -> Cause | None:
    """Return the first real cause in a log's lines, raw or cleaned; None if no line shows one.

    Skips consequences of a cause, such as ``ninja: build stopped``.
    """
    search = CauseFinder()
    for line in lines:
        search.read_line(clean_line(line).text)
    return search.cause()


def _remedy(known: Symptom, jobs: int | None, *, is_cuda: bool) -> str:
    """The remedy; for too little memory, suggest half of the MAX_JOBS that failed."""
    if known.remedy == symptom_table().remedies["fewer jobs"] and jobs == 1:
        return symptom_table().remedies["more memory"]
    remedy = known.cuda_remedy if is_cuda and known.cuda_remedy else known.remedy
    return remedy.replace("{jobs}", str(max(1, jobs // 2) if jobs else _JOBS_THAT_FIT))


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the names in braces that `values` has."""
    return re.sub(r"\{([\w-]+)\}", lambda match: values.get(match[1], match[0]), text)


def may_show_error(text: str) -> bool:
    """Whether a line can show a cause: a fast check before the regular expressions."""
    # cached, because headers print the same warnings for each of thousands of files
    return _has_error_word(text) if len(text) < _SHORT else _has_error_word.__wrapped__(text)


@lru_cache(maxsize=16_384)
def _has_error_word(text: str) -> bool:
    return any(word in text for word in symptom_table().error_words)
