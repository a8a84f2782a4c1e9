"""Jobs and steps of workflows and composite actions, as the checkers read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workflows.document import line_of, read_document


@dataclass(frozen=True)
class Element:
    """A file, a job, the body of a composite action, or a step."""

    root: Path
    path: str
    """Path of the file below `root`."""
    file: Mapping[str, Any]
    """Content of the file."""
    unit: Mapping[str, Any]
    """Content of the job or of the action's body; the whole content for a file."""
    content: Mapping[str, Any]
    job: str = ""
    """Id of the job; ``runs`` in an action, empty for a file."""

    def text(self, key: str) -> str:
        """Return a value as text, a script with its continued lines joined; empty if it is missing."""
        return str(self.content.get(key, "")).replace("\\\n", " ").strip()

    def below(self, *keys: str) -> Mapping[str, Any]:
        """Return the mapping below some keys; empty if it is missing."""
        found: Any = self.content
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    @property
    def uses(self) -> str:
        """The action or workflow, without its version."""
        return self.text("uses").partition("@")[0]

    @property
    def bare_script(self) -> str:
        """The script without what is in quotes."""
        return re.sub(r"'[^']*'|\"(\\.|[^\"\\])*\"", "", self.text("run"))

    def called(self) -> Iterator[Element]:
        """Yield the local action or workflow that it uses, if that exists."""
        path = self.uses[2:] if self.uses.endswith(".yml") else f"{self.uses[2:]}/action.yml"
        if self.uses.startswith("./") and (self.root / path).is_file():
            yield read_element(self.root, path)

    @property
    def title(self) -> str:
        """What it runs or uses, or else its name."""
        return self.text("run") or self.uses or self.text("name")

    def line(self, text: str) -> int:
        """Return the first line from the element on that has a text, or else the first line of the element."""
        first = line_of(self.content)
        lines = enumerate((self.root / self.path).read_text().splitlines(), 1)
        return next((number for number, line in lines if number >= first and text in line), first)


def read_element(root: Path, path: str) -> Element:
    """Read a workflow or action of a tree. Raises `WorkflowError` if it is not a mapping."""
    content = read_document(root / path)
    return Element(root, path, content, content, content)


def files(file: Element) -> Iterator[Element]:
    """Yield the file itself."""
    yield file


def jobs(file: Element) -> Iterator[Element]:
    """Yield the jobs of a workflow; an action has none."""
    for name, job in file.below("jobs").items():
        yield replace(file, unit=job, content=job, job=name)


def units(file: Element) -> Iterator[Element]:
    """Yield what has steps: the jobs of a workflow, or the body of an action."""
    yield from jobs(file)
    for body in [file.below("runs")] if "runs" in file.content else []:
        yield replace(file, unit=body, content=body, job="runs")


def steps(element: Element) -> Iterator[Element]:
    """Yield the steps of a file or unit; a job that calls a workflow is its own step."""
    for unit in [element] if element.job else units(element):
        for step in [unit.content] if unit.uses else unit.content.get("steps") or []:
            yield replace(unit, content=step)
