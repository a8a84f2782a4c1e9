"""Read workflow and action files as GitHub reads YAML: version 1.2, unique keys, ``on`` is a string."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


class WorkflowError(Exception):
    """A workflow that GitHub would reject before running it, or that this runner does not support."""


class LocatedMapping(dict[Any, Any]):
    """A mapping of a file, and the line of each of its keys, from 1."""

    def __init__(self, items: Mapping[Any, Any], lines: Mapping[str, int]) -> None:
        super().__init__(items)
        self.lines = lines


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2 scalars, without merge keys or duplicate keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own attribute

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> LocatedMapping:
        names = [key.value for key, _ in node.value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise WorkflowError(f"line {node.start_mark.line + 1}: duplicate key {twice[0]}")
        items = {self.construct_object(key, deep=True): self.construct_object(value, deep=True)
                 for key, value in node.value}  # fmt: skip
        return LocatedMapping(items, {key.value: key.start_mark.line + 1 for key, _ in node.value})


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_mapping)


def read_document(path: Path) -> LocatedMapping:
    """Read a workflow or action. Raises `WorkflowError` if it is missing or not a mapping."""
    if not path.is_file():
        raise WorkflowError(f"{path.name}: no such file")
    try:
        found = yaml.load(path.read_text(), _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise WorkflowError(f"{path.name}: {error}") from error
    if not isinstance(found, LocatedMapping):
        raise WorkflowError(f"{path.name}: not a mapping")
    return found


def line_of(mapping: Mapping[str, Any]) -> int:
    """Return the line of the first key; 0 if the mapping comes from no file."""
    return min(getattr(mapping, "lines", {}).values(), default=0)


def as_list(value: Any) -> list[Any]:
    """Return a value such as ``needs``, one or a list, as a list."""
    return [] if value is None else value if isinstance(value, list) else [value]
