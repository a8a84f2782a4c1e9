"""The settings of the workflows and actions, one a line: a review sees every job in which a change takes effect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

_FOR_PEOPLE = ("description", "name", "run-name")


def workflow_settings(root: Path) -> str:
    """Return the settings below a checkout: all but titles, comments and the versions of actions."""
    folder = root / ".github"
    paths = sorted([*folder.glob("workflows/*.y*ml"), *folder.glob("actions/**/action.y*ml")])
    # the base loader keeps every value, and the key `on`, as text, and repeats what an anchor stands for
    contents = [yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader) for path in paths]  # noqa: S506 - text only
    files = zip(paths, contents, strict=True)
    lines = (line for path, content in files for line in _lines(content, f"{path.relative_to(folder)}:"))
    return "".join(f"{line}\n" for line in lines)


def _lines(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            is_title = key in _FOR_PEOPLE and isinstance(inner, str) and not where.endswith((" with", " env"))
            if not is_title:
                yield from _lines(inner.partition("@")[0] if key == "uses" else inner, f"{where} {key}")
    elif isinstance(value, list) and value:
        for item in value:
            title = item.get("name") or item.get("uses", "").partition("@")[0] if isinstance(item, Mapping) else ""
            yield from _lines(item, f"{where} [{title}]")
    else:
        text = json.dumps(value) if "\n" in value or not value else value
        yield f"{where} = {text}"
