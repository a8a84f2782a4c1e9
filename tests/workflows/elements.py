"""Jobs and steps of workflows and composite actions, as the checkers read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from workflows.document import line_of, read_document

SEAL, UNSEAL = "./.github/actions/seal", "./.github/actions/unseal"
"""Our actions that upload an artifact with a digest of its content, and compare the digest after a download."""


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
    def place(self) -> str:
        """Name of the file without its ending, and the id of the job."""
        return f"{PurePosixPath(self.path).stem}/{self.job}"

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The inputs for the action or workflow."""
        return self.below("with")

    @property
    def bare_script(self) -> str:
        """The script without what is in quotes."""
        return re.sub(r"'[^']*'|\"(\\.|[^\"\\])*\"", "", self.text("run"))

    @property
    def operators(self) -> set[str]:
        """The shell operators of the script; a line break is one."""
        return set(re.findall(r"[();<>|&\n]+", self.bare_script))

    @property
    def artifact(self) -> str:
        """The name or pattern of the artifact that it uploads or downloads, with `*` in place of expressions."""
        default = "artifact" if self.is_upload else self.inputs.get("pattern", "*")
        name = str(self.inputs.get("name", default)).replace("${{ matrix.artifact }}", "kernels-*")
        return re.sub(r"\$\{\{.*?\}\}", "*", name)  # `ci jobs` chooses matrix.artifact

    @property
    def is_upload(self) -> bool:
        """Whether it uploads an artifact; the steps of our own actions do so under the name that their user chooses."""
        return self.job != "runs" and (self.uses == SEAL or self.uses.startswith("actions/upload-"))

    @property
    def is_download(self) -> bool:
        """Whether it downloads an artifact; again, a step of our own action counts where the action is used."""
        return self.job != "runs" and self.uses in (UNSEAL, "actions/download-artifact")

    @property
    def is_log(self) -> bool:
        """Whether it uploads a log for people, which no job downloads except *report*, to quote it."""
        return self.is_upload and self.artifact.startswith("log-")

    @property
    def paths(self) -> list[str]:
        """The paths that it uploads, attests, hashes or downloads into."""
        has_path = self.is_upload or self.is_download or self.uses == "actions/attest"
        keys = ("path", "subject-checksums") if has_path else ()
        given = [str(self.inputs.get(key, "")) for key in keys]
        hashed = " ".join(re.findall(r"hashFiles\(([^)]*)\)", self.text("if")))
        return re.findall(r"^\s*([^!\s].*?)\s*$", "\n".join(given), re.MULTILINE) + re.findall(r"'([^']+)'", hashed)

    def called(self) -> Iterator[Element]:
        """Yield the local action or workflow that it uses, if that exists."""
        path = self.uses[2:] if self.uses.endswith(".yml") else f"{self.uses[2:]}/action.yml"
        if self.uses.startswith("./") and (self.root / path).is_file():
            yield read_element(self.root, path)

    @property
    def title(self) -> str:
        """What it runs or uses, or else its name."""
        return self.text("run") or self.uses or self.text("name")

    def source(self, key: str | None = None) -> str:
        """Return the text of the file, or only the line of a key."""
        text = (self.root / self.path).read_text()
        return text if key is None else text.splitlines()[line_of(self.content, key) - 1]

    def line(self, text: str) -> int:
        """Return the first line from the element on that has a text, or else the first line of the element."""
        first = line_of(self.content)
        lines = enumerate(self.source().splitlines(), 1)
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


def with_called(steps_: Iterator[Element]) -> Iterator[Element]:
    """Yield steps, each followed by the steps of the local action or workflow that it uses."""
    for step in steps_:
        yield step
        for file in step.called():
            yield from with_called(steps(file))


def parts(file: Element) -> Iterator[Element]:
    """Yield the jobs and all steps of a file."""
    yield from jobs(file)
    yield from steps(file)


def fixed_parts(path: str) -> list[str]:
    """Return the parts of a path before the first with a wildcard or variable."""
    return list(takewhile(lambda part: not re.search(r"[*?$]", part), PurePosixPath(path).parts))
