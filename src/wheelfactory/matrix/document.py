"""Parse YAML into plain values, and keep the line and column of each for error messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import yaml
from yaml.reader import Reader

KeyPath = tuple[str | int, ...]
"""The keys and list positions that lead to a value, such as ``("rocm", "7.2", "torch", 0)``; with `KEY`, to its key."""

KEY = "[key]"
"""Ends the path of a key, as in pydantic's errors."""

# the limit of nesting; a matrix has 6 levels. libyaml crashes on deep nesting, and an alias can contain itself
MAX_DEPTH = 20

# the limit against a YAML bomb: aliases of aliases expand a few lines to more values than memory holds
MAX_VALUES = 100_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Mark(Protocol):
    """A position in the text, counted from 0; the Python and the C parser have unrelated classes for it."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


@dataclass(frozen=True)
class Number:
    """The text of an unquoted number."""

    # not the value: 7.10 would become 7.1
    text: str


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in the file: its position (counted from 1), and a hint with what to write instead."""

    line: int
    column: int
    what: str
    hint: str

    @classmethod
    def at_mark(cls, mark: Mark, what: str, hint: str) -> Problem:
        """Create a problem at a position."""
        return cls(mark.line + 1, mark.column + 1, what, hint)


class UnreadableError(Exception):
    """Invalid YAML, or YAML beyond the limits, with the position where parsing stopped."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.what)
        self.problem = problem


class Document:
    """A parsed YAML file: its values, the positions of values and keys, and its mistakes as YAML."""

    def __init__(self, text: str) -> None:
        self.problems: list[Problem] = []
        self.key_marks: dict[KeyPath, Mark] = {}
        self.marks: dict[KeyPath, Mark] = {}
        self.values = self._read_value(_compose(text), ())

    def mark(self, key_path: KeyPath) -> Mark:
        """Find the position of a key or a value; for a missing value, of the nearest mapping or list around it."""
        if key_path[-1:] == (KEY,):
            return self.key_marks[key_path[:-1]]
        while key_path not in self.marks:
            key_path = key_path[:-1]
        return self.marks[key_path]

    def _read_value(self, node: yaml.Node, key_path: KeyPath) -> Any:
        if len(key_path) > MAX_DEPTH:
            raise _too_deep(node.start_mark)
        if len(self.marks) > MAX_VALUES:
            what = f"more than {MAX_VALUES:,} values"
            raise UnreadableError(Problem.at_mark(node.start_mark, what, "use fewer aliases of aliases"))
        self.marks[key_path] = node.start_mark
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, key_path)
        if isinstance(node, yaml.SequenceNode):
            items = [self._read_value(item, (*key_path, position)) for position, item in enumerate(node.value)]
            self._report_duplicates(node, items)
            return items
        return _read_scalar(node)

    def _read_mapping(self, node: yaml.MappingNode, key_path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._report(key_node, "a key must be text, not a list or mapping", "put text with {} or [] in quotes")
                continue
            if key_node.tag == "tag:yaml.org,2002:merge":
                hint = "write the keys out, or 'key: *name' for a whole entry"
                raise UnreadableError(Problem.at_mark(key_node.start_mark, "merge keys (<<) are not supported", hint))
            key = key_node.value
            inner = (*key_path, key)
            if key in mapping:
                first = self.key_marks[inner].line + 1
                self._report(key_node, f"{key!r} is given twice", f"the first is on line {first}; keep one")
                continue
            if isinstance(_read_scalar(key_node), Number):
                self._report(key_node, f"{key} is a number, not a version", quote(key))
            self.key_marks[inner] = key_node.start_mark
            mapping[key] = self._read_value(value_node, inner)
        return mapping

    def _report_duplicates(self, node: yaml.SequenceNode, items: list[Any]) -> None:
        seen: set[str] = set()
        for item_node, item in zip(node.value, items, strict=True):
            text = repr(item)
            if text in seen:
                what = text if isinstance(item, str) else "this entry"
                self._report(item_node, f"{what} is listed twice", "remove one of them")
            seen.add(text)

    def _report(self, node: yaml.Node, what: str, hint: str) -> None:
        self.problems.append(Problem.at_mark(node.start_mark, what, hint))


def quote(number: str) -> str:
    """The hint for an unquoted number."""
    return f"write '{number}' in quotes: unquoted, 7.10 and 7.1 are the same number"


def _read_scalar(node: yaml.Node) -> str | bool | Number | None:
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
        _check_depth(text)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what, hint = str(error.problem), "check the indentation, the brackets and the quotes there"
        # libyaml's index does not count a byte order mark
        if mark and text.removeprefix("\ufeff")[mark.index : mark.index + 1] == "\t":
            what, hint = "a tab cannot indent a line", "write spaces instead"
        raise UnreadableError(Problem(line, column, what, hint)) from None
    if node is None:
        raise UnreadableError(Problem(1, 1, "the file is empty", "start from the matrix.yaml of the repository"))
    return node


def _check_depth(text: str) -> None:
    # before `yaml.compose`: libyaml's recursion overflows the C stack, which kills the process
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH and event.start_mark:
            raise _too_deep(event.start_mark)


def _too_deep(mark: Mark) -> UnreadableError:
    hint = "close the brackets; an alias must not contain itself"
    return UnreadableError(Problem.at_mark(mark, f"nested more than {MAX_DEPTH} deep", hint))
