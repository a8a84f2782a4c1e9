"""YAML text -> plain values, and for each the line and column it stands at. Knows YAML and nothing of the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import yaml
from yaml.reader import Reader

KeyPath = tuple[str | int, ...]
"""Where a value stands: the keys and list positions that lead to it, such as ``("rocm", "7.2", "torch", 0)``."""

DEEPEST = 20
"""A matrix is 6 deep; beyond this libyaml's recursion ends the process, and an alias can hold itself."""

MOST_VALUES = 100_000
"""Aliases of aliases make a few lines hold more values than memory does."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Mark(Protocol):
    """A place in the text as the YAML readers (Python's and C's) give it, counted from 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


@dataclass(frozen=True)
class Number:
    """An unquoted number as the file writes it: as a value 7.10 would be 7.1."""

    text: str


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with the file: where (counted from 1), what, and what to write instead."""

    line: int
    column: int
    what: str
    hint: str

    @classmethod
    def at_mark(cls, mark: Mark, what: str, hint: str) -> Problem:
        """A problem at a mark."""
        return cls(mark.line + 1, mark.column + 1, what, hint)


class UnreadableError(Exception):
    """Text that is no YAML, or that no matrix can be, with the place where reading it ended."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


class Document:
    """A parsed YAML file: its values, the marks of values and of keys, and what is wrong with it as YAML."""

    def __init__(self, text: str) -> None:
        self.problems: list[Problem] = []
        self.key_marks: dict[KeyPath, Mark] = {}
        self.marks: dict[KeyPath, Mark] = {}
        self.values = self._value(_compose(text), ())

    def mark(self, place: KeyPath) -> Mark:
        """The mark of a place, or of the nearest place around it that the file has."""
        while place not in self.marks:
            place = place[:-1]
        return self.marks[place]

    def _value(self, node: yaml.Node, place: KeyPath) -> Any:
        if len(place) > DEEPEST:
            raise _too_deep(node.start_mark)
        if len(self.marks) > MOST_VALUES:
            what = f"more than {MOST_VALUES:,} values"
            raise UnreadableError(Problem.at_mark(node.start_mark, what, "use fewer aliases of aliases"))
        self.marks[place] = node.start_mark
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            items = [self._value(item, (*place, position)) for position, item in enumerate(node.value)]
            self._refuse_repeated(node, items)
            return items
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, place: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, "a list or mapping stands where a key must", "put text with {} or [] in quotes")
                continue
            if key_node.tag == "tag:yaml.org,2002:merge":
                what, hint = (
                    "merge keys (<<) are not supported",
                    "write the keys out, or 'key: *name' for a whole entry",
                )
                raise UnreadableError(Problem.at_mark(key_node.start_mark, what, hint))
            key = key_node.value
            inner = (*place, key)
            if key in mapping:
                first = self.key_marks[inner].line + 1
                self._problem(key_node, f"{key!r} is given twice", f"the first is on line {first}; keep one")
                continue
            if isinstance(_scalar(key_node), Number):
                self._problem(key_node, f"{key} is a number, not a version", quote(key))
            self.key_marks[inner] = key_node.start_mark
            mapping[key] = self._value(value_node, inner)
        return mapping

    def _refuse_repeated(self, node: yaml.SequenceNode, items: list[Any]) -> None:
        seen: set[str] = set()
        for item_node, item in zip(node.value, items, strict=True):
            text = repr(item)
            if text in seen:
                what = text if isinstance(item, str) else "this entry"
                self._problem(item_node, f"{what} is listed twice", "remove one of them")
            seen.add(text)

    def _problem(self, node: yaml.Node, what: str, hint: str) -> None:
        self.problems.append(Problem.at_mark(node.start_mark, what, hint))


def quote(number: str) -> str:
    """What to write instead of an unquoted number."""
    return f"write '{number}' in quotes: unquoted, 7.10 and 7.1 are the same number"


def _scalar(node: yaml.Node) -> str | bool | Number | None:
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind in ("float", "int"):
        return Number(node.value)
    if kind == "bool":
        return node.value.lower() in ("true", "yes", "on")
    return None if kind == "null" else str(node.value)


def _compose(text: str) -> yaml.Node:
    if found := Reader.NON_PRINTABLE.search(text):
        before = text[: found.start()]
        line, column = before.count("\n") + 1, found.start() - before.rfind("\n")
        character = f"U+{ord(found[0]):04X} is a control character"
        raise UnreadableError(Problem(line, column, character, "remove it: YAML is plain text"))
    try:
        _refuse_deep_nesting(text)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what, hint = str(error.problem), "check the indentation, the brackets and the quotes there"
        if mark and text.removeprefix("\ufeff")[mark.index : mark.index + 1] == "\t":  # the one in C skips such a mark
            what, hint = "a tab cannot indent a line", "write spaces instead"
        raise UnreadableError(Problem(line, column, what, hint)) from None
    if node is None:
        raise UnreadableError(Problem(1, 1, "the file is empty", "start from the matrix.yaml of the repository"))
    return node


def _refuse_deep_nesting(text: str) -> None:
    """Before `yaml.compose`, whose recursion in C takes the process down where Python would raise."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST and event.start_mark:
            raise _too_deep(event.start_mark)


def _too_deep(mark: Mark) -> UnreadableError:
    hint = "close the brackets; no alias may hold itself"
    return UnreadableError(Problem.at_mark(mark, f"nested more than {DEEPEST} deep", hint))
