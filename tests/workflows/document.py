"""Workflow and action files, read as GitHub reads YAML: version 1.2, no key twice, ``on`` is a word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml


class WorkflowError(Exception):
    """A workflow that GitHub would refuse before it runs anything, or that this runner does not know how to run."""


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2, without merge keys, and with each key once."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own attribute

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise WorkflowError(f"line {node.start_mark.line + 1}: the key {twice[0]} is there twice")
        return {self.construct_object(key, deep=True): self.construct_object(value, deep=True)
                for key, value in node.value}  # fmt: skip


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_mapping)


def read_document(path: Path) -> dict[str, Any]:
    """The content of a workflow or action. Raises `WorkflowError` if there is none."""
    if not path.is_file():
        raise WorkflowError(f"{path.name}: there is no such file")
    try:
        found = yaml.load(path.read_text(), _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise WorkflowError(f"{path.name}: {error}") from error
    if not isinstance(found, dict):
        raise WorkflowError(f"{path.name}: holds no keys")
    return found


def as_list(value: Any) -> list[Any]:
    """``needs`` and the like may be one or several."""
    return [] if value is None else value if isinstance(value, list) else [value]
