"""A rule for workflows and composite actions, and how rules are applied to a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from workflows.checkers import Finding, action_files, workflow_files
from workflows.elements import Element, read_element


class Rule(NamedTuple):
    """What a rule reads, what breaks it there (anything true, or each detail), and what to do then."""

    elements: Callable[[Element], Iterable[Element]]
    broken: Callable[[Element], object]
    remedy: str


def apply_rules(root: Path, rules: Mapping[str, Rule]) -> list[Finding]:
    """Check every workflow and composite action of a tree against rules by their names."""
    found = []
    for file in (read_element(root, path) for path in (*workflow_files(root), *action_files(root))):
        for name, rule in rules.items():
            for element in rule.elements(file):
                broken = rule.broken(element)
                for what in broken if isinstance(broken, Iterator) else [element.title] if broken else []:
                    message = f"{name}: {element.job or 'the file'}: {what}; {rule.remedy}"
                    found.append(Finding(element.path, element.line(what), message))
    return list(dict.fromkeys(found))
