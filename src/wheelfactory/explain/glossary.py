"""Load glossary.yaml: known causes of failed builds, compiler flags and parts of kernel names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from wheelfactory.core.errors import InputError
from wheelfactory.matrix.document import Document, Number, Problem, UnreadableError

PATH = Path(__file__).with_name("glossary.yaml")


def _alternatives(value: Any) -> Any:
    """Join a list of regular expressions into one."""
    several = isinstance(value, list) and value and all(isinstance(text, str) and text for text in value)
    return "|".join(value) if several else value


Text = Annotated[str, StringConstraints(min_length=1)]
Pattern = Annotated[re.Pattern[str], BeforeValidator(_alternatives)]
Count = Annotated[int, BeforeValidator(lambda value: int(value.text) if isinstance(value, Number) else value)]
FlagOrigin = Literal["flash-attn", "torch", "wheelfactory", "anyone"]


class _Entry(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=lambda name: name.replace("_", " ")
    )


class KnownCause(_Entry):
    """A kind of failure."""

    name: Text
    patterns: Pattern
    """Searched anywhere in a log line."""
    remedy: Text
    """``{jobs}`` in it is a number of jobs that is likely to fit."""
    cuda_name: str = ""
    cuda_remedy: str = ""
    """Name and remedy for a build for CUDA, if they differ."""


class FlagPattern(_Entry):
    """Flags with the same prefix."""

    starts_with: Pattern
    meaning: Text
    set_by: FlagOrigin


class Operation(_Entry):
    """What a kernel computes, and what the sizes in its name mean."""

    direction: Literal["forward", "backward"]
    meaning: Text
    tile: list[Text]
    warp_labels: list[Text] = ["QK", "PV"]
    mfma_labels: list[Text] = ["QK", "PV"]


class StateMarkers(_Entry):
    """Lines that show whether a build has started, finished or failed."""

    started: Pattern
    finished: Pattern
    failed: Pattern
    line_filter: list[Text]


class Glossary(_Entry):
    """The whole file; its comments describe each part."""

    remedies: dict[Text, Text]
    causes: list[KnownCause]
    generic_causes: list[KnownCause]
    state_markers: StateMarkers
    error_words: Annotated[list[Text], Field(min_length=1)]
    warnings: list[Text]
    flags: dict[FlagOrigin, dict[Text, Text]]
    flag_patterns: list[FlagPattern]
    header_folders: dict[Text, Text]
    operations: dict[Text, Operation]
    types: dict[Text, Text]
    name_parts: dict[Text, Text]
    typical_kernel_counts: dict[Text, Count]
    releases_by_source_count: dict[Text, Text]

    def find_flag_meaning(self, flag: str) -> tuple[str, str] | None:
        """Return a flag's meaning and who sets it (empty: anyone); None if unknown."""
        name = flag.partition("=")[0] if flag.startswith("-D") else flag
        exact = ((flags[name], setter) for setter, flags in self.flags.items() if name in flags)
        by_prefix = ((entry.meaning, entry.set_by) for entry in self.flag_patterns if entry.starts_with.match(flag))
        found = next(exact, None) or next(by_prefix, None)
        return found and (found[0], "" if found[1] == "anyone" else found[1])


@cache
def glossary() -> Glossary:
    """Return the glossary of this package."""
    return read_glossary(PATH)


def read_glossary(path: Path) -> Glossary:
    """Read and validate a glossary. Raises InputError with file, line and column of each problem."""
    try:
        document = Document(path.read_text(encoding="utf-8"))
        problems = list(document.problems)
        try:
            found = Glossary.model_validate(document.values)
        except ValidationError as error:
            for details in error.errors():
                where = ".".join(map(str, details["loc"])) or "the file"
                mark = document.mark(details["loc"])
                problems.append(Problem.at_mark(mark, f"{where}: {details['msg']}", "see the schema"))
    except UnreadableError as error:
        problems = [error.problem]
    if problems:
        lines = [f"{path}:{problem.line}:{problem.column}: {problem.what}" for problem in sorted(problems)]
        raise InputError("bad glossary", "\n  ".join(lines), "see the schema in wheelfactory/explain/glossary.py")
    return found
