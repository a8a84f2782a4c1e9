"""A workflow as it is written, and what GitHub refuses of it before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.document import WorkflowError, as_list, read_document
from workflows.permissions import granted

FOLDER = ".github/workflows"
MOST_LEVELS = 10
"""Of workflows that call workflows (GitHub's docs, limits of reusable workflows)."""

CALLER_KEYS = frozenset({
    *("name", "uses", "with", "secrets", "strategy", "needs", "if", "concurrency", "permissions"),
})  # fmt: skip
"""What a job that calls a workflow may have (GitHub's docs on reusing workflows)."""

_NOT_HERE = ("container", "services")
_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "boolean": bool, "number": (int, float)}


@dataclass(frozen=True)
class Workflow:
    """A file, and its content."""

    tree: Path
    file: str
    content: Mapping[str, Any]

    @property
    def jobs(self) -> Mapping[str, Mapping[str, Any]]:
        """What is written of each job."""
        jobs: Mapping[str, Mapping[str, Any]] = self.content["jobs"]
        return jobs

    @property
    def name(self) -> str:
        """As GitHub shows it."""
        return str(self.content.get("name", f"{FOLDER}/{self.file}"))

    def trigger(self, event: str) -> Mapping[str, Any] | None:
        """What stands below the event in ``on``; None if the workflow does not start on it."""
        on = self.content["on"]
        if not isinstance(on, Mapping):
            return {} if event in as_list(on) else None
        if event not in on:
            return None
        below = on[event]
        return below if isinstance(below, Mapping) else {}

    def called(self, job: str) -> Workflow | None:
        """The workflow that a job calls. Raises `WorkflowError` if it is not one of this tree."""
        uses = self.jobs[job].get("uses")
        if uses is None:
            return None
        if not uses.startswith(f"./{FOLDER}/"):
            raise WorkflowError(f"{self.file}: {job}: calls {uses}, which is not in this tree")
        return read_workflow(self.tree, uses.removeprefix(f"./{FOLDER}/"))


def read_workflow(tree: Path, file: str) -> Workflow:
    """A workflow of a tree. Raises `WorkflowError`."""
    content = read_document(tree / FOLDER / file)
    for name in ("on", "jobs"):
        if name not in content:
            raise WorkflowError(f"{file}: there is no {name}")
    return Workflow(tree, file, content)


def check(workflow: Workflow, most: Mapping[str, str] | None = None, level: int = 1) -> None:
    """Raises `WorkflowError` for what keeps a run from starting; `most` as in `granted`."""
    if level > MOST_LEVELS:
        raise WorkflowError(f"{workflow.file}: is called at level {level}, and {MOST_LEVELS} is the most")
    in_order(workflow)
    for name, job in workflow.jobs.items():
        where = f"{workflow.file}: {name}"
        unknown = [key for key in _NOT_HERE if key in job]
        if unknown:
            raise WorkflowError(f"{where}: {unknown[0]} cannot be run here")
        permissions = granted(workflow.content, job, most, where)
        called = workflow.called(name)
        if called is None:
            if "steps" not in job or "runs-on" not in job:
                raise WorkflowError(f"{where}: needs steps and runs-on, or uses")
        else:
            _check_call(called, job, where)
            check(called, permissions, level + 1)


def _check_call(called: Workflow, job: Mapping[str, Any], where: str) -> None:
    refused = sorted(set(job) - CALLER_KEYS)
    if refused:
        raise WorkflowError(f"{where}: {refused[0]} cannot stand in a job that calls a workflow")
    trigger = called.trigger("workflow_call")
    if trigger is None:
        raise WorkflowError(f"{where}: {called.file} is not made to be called")
    if job.get("secrets") is not None:
        raise WorkflowError(f"{where}: secrets are not handed on here")
    declared, given = trigger.get("inputs") or {}, job.get("with") or {}
    for name in given:
        if name not in declared:
            raise WorkflowError(f"{where}: {called.file} has no input {name}")
    for name, about in declared.items():
        if "type" not in about:
            raise WorkflowError(f"{called.file}: the input {name} has no type")
        if about.get("required") and name not in given:
            raise WorkflowError(f"{where}: {called.file} requires the input {name}")


def call_inputs(called: Workflow, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The ``inputs`` of a called workflow. Raises `WorkflowError` for a value of another type."""
    declared = (called.trigger("workflow_call") or {}).get("inputs") or {}
    found = {}
    for name, about in declared.items():
        empty = {"string": "", "boolean": False, "number": 0}[about["type"]]
        value = given[name] if name in given else defaults.get(name, empty)
        right = isinstance(value, _TYPES[about["type"]]) and (about["type"] == "boolean") == isinstance(value, bool)
        if not right:
            raise WorkflowError(f"{called.file}: the input {name} is a {about['type']}, not {value!r}")
        found[name] = value
    return found


def dispatch_inputs(workflow: Workflow, given: Mapping[str, str]) -> dict[str, Any]:
    """The ``inputs`` of a run by hand. GitHub is given text, and refuses what does not fit with an error of its API."""
    declared = (workflow.trigger("workflow_dispatch") or {}).get("inputs") or {}
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise WorkflowError(f"{workflow.file}: has no input {unknown[0]}")
    found: dict[str, Any] = {}
    for name, about in declared.items():
        if name not in given and about.get("required") and "default" not in about:
            raise WorkflowError(f"{workflow.file}: requires the input {name}")
        found[name] = _typed(about, given.get(name, about.get("default")), f"{workflow.file}: the input {name}")
    return found


def _typed(about: Mapping[str, Any], value: Any, where: str) -> Any:
    kind = about.get("type", "string")
    if kind == "choice" and value not in about["options"]:
        raise WorkflowError(f"{where} is one of {about['options']}, not {value!r}")
    if kind == "boolean":
        if str(value).lower() not in ("true", "false", "none"):
            raise WorkflowError(f"{where} is a boolean, not {value!r}")
        return str(value).lower() == "true"
    if kind == "number":
        try:
            number = float(value or 0)
        except ValueError:
            raise WorkflowError(f"{where} is a number, not {value!r}") from None
        return int(number) if number.is_integer() else number
    return "" if value is None else str(value)


def in_order(workflow: Workflow) -> list[str]:
    """The jobs, each after those that it needs. Raises `WorkflowError` if there is no such order."""
    found: list[str] = []
    left = {name: as_list(job.get("needs")) for name, job in workflow.jobs.items()}
    for name, needs in left.items():
        for one in needs:
            if one not in left:
                raise WorkflowError(f"{workflow.file}: {name}: needs {one}, which is not there")
    while left:
        ready = [name for name, needs in left.items() if set(needs) <= set(found)]
        if not ready:
            raise WorkflowError(f"{workflow.file}: {', '.join(left)}: need each other")
        found.append(ready[0])
        del left[ready[0]]
    return found


def ancestors(workflow: Workflow, job: str) -> set[str]:
    """All that a job needs, and what these need: what success() and failure() ask for."""
    needs = as_list(workflow.jobs[job].get("needs"))
    return set(needs).union(*(ancestors(workflow, one) for one in needs))
