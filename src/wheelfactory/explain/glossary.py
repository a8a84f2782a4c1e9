"""glossary.yaml -> all that explain knows of failed builds, compiler flags and kernel names."""

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
    """One regular expression of several, any of which may be found."""
    several = isinstance(value, list) and value and all(isinstance(text, str) and text for text in value)
    return "|".join(value) if several else value


Text = Annotated[str, StringConstraints(min_length=1)]
Pattern = Annotated[re.Pattern[str], BeforeValidator(_alternatives)]
Count = Annotated[int, BeforeValidator(lambda value: int(value.text) if isinstance(value, Number) else value)]
Giver = Literal["flash-attn", "torch", "wheelfactory", "anybody"]


class _Entry(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=lambda name: name.replace("_", " ")
    )


class KnownCause(_Entry):
    """A kind of failure."""

    name: Text
    patterns: Pattern
    """Found anywhere in a line of the log."""
    remedy: Text


class FlagPattern(_Entry):
    """Flags that begin alike."""

    starts_with: Pattern
    meaning: Text
    set_by: Giver


class Operation(_Entry):
    """What a kernel computes, and what the sizes in its name are of."""

    direction: Literal["forward", "backward"]
    meaning: Text
    tile: list[Text]
    warps: list[Text] = ["QK", "PV"]
    matrix: list[Text] = ["QK", "PV"]


class Signs(_Entry):
    """Lines by which a log shows how far a build came."""

    started: Pattern
    finished: Pattern
    failed: Pattern
    words: list[Text]


class Glossary(_Entry):
    """The whole file; its comments say what each part is."""

    remedies: dict[Text, Text]
    causes: list[KnownCause]
    generic_causes: list[KnownCause]
    signs: Signs
    error_words: Annotated[list[Text], Field(min_length=1)]
    warnings: list[Text]
    flags: dict[Giver, dict[Text, Text]]
    flag_patterns: list[FlagPattern]
    header_folders: dict[Text, Text]
    operations: dict[Text, Operation]
    types: dict[Text, Text]
    name_parts: dict[Text, Text]
    usual_mix: dict[Text, Count]
    releases: dict[Text, Text]

    def find_flag_meaning(self, flag: str) -> tuple[str, str] | None:
        """What a flag does, and who gives it (empty: anybody); None if it is not known."""
        name = flag.partition("=")[0] if flag.startswith("-D") else flag
        exact = ((flags[name], giver) for giver, flags in self.flags.items() if name in flags)
        begun = ((entry.meaning, entry.set_by) for entry in self.flag_patterns if entry.starts_with.match(flag))
        found = next(exact, None) or next(begun, None)
        return found and (found[0], "" if found[1] == "anybody" else found[1])


@cache
def glossary() -> Glossary:
    """The glossary of this package."""
    return read_glossary(PATH)


def read_glossary(path: Path) -> Glossary:
    """The glossary that a file holds. Raises `InputError` with file, line and column of each thing wrong with it."""
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
        raise InputError(
            "bad glossary", "\n  ".join(lines), "make it fit the schema in wheelfactory/explain/glossary.py"
        )
    return found
