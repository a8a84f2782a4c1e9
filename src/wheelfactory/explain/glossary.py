"""Load glossary.yaml: the states of a build, compiler flags and parts of kernel names."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints

from wheelfactory.matrix.document import Document, Number

PATH = Path(__file__).with_name("glossary.yaml")


def _alternatives(value: Any) -> Any:
    """Join a list of regular expressions into one."""
    several = isinstance(value, list) and value and all(isinstance(text, str) and text for text in value)
    return "|".join(value) if several else value


Text = Annotated[str, StringConstraints(min_length=1)]
Pattern = Annotated[re.Pattern[str], BeforeValidator(_alternatives)]
Count = Annotated[int, BeforeValidator(lambda value: int(value.text) if isinstance(value, Number) else value)]
FlagOrigin = Literal["flash-attn", "torch", "wheelfactory", "anyone"]


class Entry(BaseModel):
    """A part of a file, whose keys have blanks instead of underscores."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=lambda name: name.replace("_", " ")
    )


EntryT = TypeVar("EntryT", bound=Entry)


class FlagPattern(Entry):
    """Flags with the same prefix."""

    starts_with: Pattern
    meaning: Text
    set_by: FlagOrigin


class Operation(Entry):
    """What a kernel computes, and what the sizes in its name mean."""

    direction: Literal["forward", "backward"]
    meaning: Text
    tile: list[Text]
    warp_labels: list[Text] = ["QK", "PV"]
    mfma_labels: list[Text] = ["QK", "PV"]


class StateMarkers(Entry):
    """Lines that show whether a build has started, finished or failed."""

    started: Pattern
    finished: Pattern
    failed: Pattern
    line_filter: list[Text]


class Glossary(Entry):
    """The whole file; its comments describe each part."""

    state_markers: StateMarkers
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
    return read_table(PATH, Glossary)


def read_table(path: Path, model: type[EntryT]) -> EntryT:
    """Read a file of this package. Raises ValueError for a mistake in it, which only an edit of the file can make."""
    document = Document(path.read_text(encoding="utf-8"))
    if document.problems:
        raise ValueError(f"{path}: {document.problems}")
    return model.model_validate(document.values)
