"""Load symptoms.yaml: what lines of a failed build, pip, import, GPU or container mean, and what to do."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from wheelfactory.explain.glossary import Entry, Pattern, Text, read_table

PATH = Path(__file__).with_name("symptoms.yaml")

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
    error_words: Annotated[list[Text], Field(min_length=1)]
    warnings: Pattern

    @property
    def context_words(self) -> frozenset[str]:
        """All words of a `Symptom.context`."""
        return frozenset(word for known in (*self.symptoms, *self.generic_symptoms) for word in known.context)


@cache
def symptom_table() -> SymptomTable:
    """Return the table of this package."""
    return read_table(PATH, SymptomTable)
