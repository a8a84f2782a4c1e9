"""matrix.yaml -> `Matrix`, or errors that each name the file, line and column and say what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from packaging.specifiers import SpecifierSet
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from wheelfactory.errors import InputError
from wheelfactory.matrix.facts import Matrix

Place = tuple[str | int, ...]
"""Where a value stands: the keys and list positions that lead to it, such as ``("rocm", "7.2", "torch", 0)``."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Document:
    """A parsed YAML file: plain values, and for each place the mark of its value and of its key."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.problems: list[tuple[yaml.Mark, str, str]] = []
        self.marks: dict[Place, yaml.Mark] = {}
        self.key_marks: dict[Place, yaml.Mark] = {}
        node = yaml.compose(text, Loader=_LOADER)
        self.values = {} if node is None else self._value(node, ())

    def _value(self, node: yaml.Node, place: Place) -> Any:
        self.marks[place] = node.start_mark
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            items = [self._value(item, (*place, position)) for position, item in enumerate(node.value)]
            self._refuse_repeated(node, items)
            return items
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(self._scalar(key_node))
            inner = (*place, key)
            if key in mapping:
                first = self.key_marks[inner].line + 1
                self._problem(key_node, f"{key!r} is given twice", f"the first is on line {first}; keep one")
                continue
            self.key_marks[inner] = key_node.start_mark
            mapping[key] = self._value(value_node, inner)
        return mapping

    def _scalar(self, node: yaml.Node) -> Any:
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind in ("float", "int"):
            self._problem(
                node,
                f"{node.value} is a number, not a version",
                f"write '{node.value}' in quotes: unquoted, 7.10 and 7.1 are the same number",
            )
        if kind == "bool":
            return node.value.lower() in ("true", "yes", "on")
        return None if kind == "null" else node.value

    def _refuse_repeated(self, node: yaml.SequenceNode, items: list[Any]) -> None:
        seen: list[Any] = []
        for item_node, item in zip(node.value, items, strict=True):
            if item in seen:
                self._problem(item_node, f"{item!r} is listed twice", "remove one of them")
            seen.append(item)

    def _problem(self, node: yaml.Node, what: str, hint: str) -> None:
        self.problems.append((node.start_mark, what, hint))


def load_matrix(path: Path) -> Matrix:
    """The matrix that a file holds.

    Raises `InputError` whose text has one ``file:line:column: what`` line for each thing wrong with it.
    """
    document = _read(path)
    problems = list(document.problems)
    if not problems:
        try:
            matrix = Matrix.model_validate(document.values)
        except ValidationError as error:
            problems = [_explain(document, details) for details in error.errors()]
        else:
            problems = [(document.marks[place], what, hint) for place, what, hint in _dangling(matrix)]
    if problems:
        raise _as_error(path, problems)
    return matrix


def _read(path: Path) -> _Document:
    try:
        return _Document(path, path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("no such file", str(path), "name one with --matrix FILE") from None
    except OSError as error:
        raise InputError("cannot read", f"{path} ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", str(path)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise InputError("not YAML", f"{at}: {error.problem}", "check the indentation and the quotes there") from None
    except yaml.YAMLError as error:
        raise InputError("not YAML", f"{path}: {error}") from None


def _as_error(path: Path, problems: list[tuple[yaml.Mark, str, str]]) -> InputError:
    problems.sort(key=lambda problem: problem[0].line)
    lines = [f"{path}:{mark.line + 1}:{mark.column + 1}: {what}" for mark, what, _ in problems]
    hints = dict.fromkeys(hint for _, _, hint in problems if hint)
    count = "one mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    return InputError(
        f"{count} in the matrix",
        "\n  ".join(["", *lines]).lstrip("\n") if len(lines) > 1 else lines[0],
        "; ".join(hints),
    )


def _explain(document: _Document, details: ErrorDetails) -> tuple[yaml.Mark, str, str]:
    place, kind = details["loc"], details["type"]
    name = ".".join(str(part) for part in place)
    if kind == "extra_forbidden":
        allowed = ", ".join(_known_keys(place[:-1]))
        return document.key_marks[place], f"unknown key {place[-1]!r}", f"known here: {allowed}"
    if kind == "missing":
        return _mark(document, place), f"{name} is missing", f"add {place[-1]!r} to that entry"
    message = str(details["msg"]).removeprefix("Value error, ")
    return _mark(document, place), f"{name}: {message}", ""


def _mark(document: _Document, place: Place) -> yaml.Mark:
    """The mark of a place, or of the nearest place around it that the file has."""
    while place not in document.marks:
        place = place[:-1]
    return document.marks[place]


def _known_keys(place: Place) -> Iterator[str]:
    """The keys that the mapping at a place may have, read off the schema of `Matrix`."""
    schema = Matrix.model_json_schema(by_alias=True)
    node: dict[str, Any] = schema
    for part in place:
        node = _resolve(schema, node)
        if node.get("type") == "array":
            node = node["items"]
        else:
            node = node.get("properties", {}).get(part) or node["additionalProperties"]
    yield from _resolve(schema, node).get("properties", {})


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    for option in (node, *node.get("anyOf", ())):
        if "$ref" in option:
            resolved: dict[str, Any] = schema["$defs"][option["$ref"].rsplit("/", 1)[1]]
            return resolved
    return node


def _dangling(matrix: Matrix) -> Iterator[tuple[Place, str, str]]:
    """What refers to a version that the matrix does not have."""
    for version, rocm in matrix.rocm.items():
        for position, torch in enumerate(rocm.torch):
            if torch not in matrix.torch:
                yield (
                    ("rocm", version, "torch", position),
                    f"torch {torch} has no entry",
                    f"known: {', '.join(matrix.torch)}; add one under torch:",
                )
    axes = {
        "flash-attn": matrix.flash_attn,
        "python": matrix.python,
        "torch": matrix.torch,
        "rocm": matrix.rocm,
    }
    for position, exclusion in enumerate(matrix.exclude):
        for axis, window in exclusion.axes.items():
            if not any(SpecifierSet(window).contains(value, prereleases=True) for value in axes[axis]):
                yield (
                    ("exclude", position, axis),
                    f"no {axis} version is {window}",
                    f"known: {', '.join(axes[axis])}",
                )
        if exclusion.backend and exclusion.backend not in matrix.backend:
            yield (("exclude", position, "backend"), f"no backend is {exclusion.backend}", "")
