"""A workflow definition, and the errors that GitHub reports before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.document import WorkflowError, as_list, read_document

FOLDER = ".github/workflows"
_UNSUPPORTED = ("container", "services", "defaults", "secrets")
_UNSUPPORTED_IN_STEPS = ("working-directory", "continue-on-error")
_TYPES: dict[str, type | tuple[type, ...]] = {"string": str, "boolean": bool, "number": (int, float)}


@dataclass(frozen=True)
class Workflow:
    tree: Path
    file: str
    content: Mapping[str, Any]

    @property
    def jobs(self) -> Mapping[str, Mapping[str, Any]]:
        """Job id -> its definition."""
        jobs: Mapping[str, Mapping[str, Any]] = self.content["jobs"]
        return jobs

    @property
    def name(self) -> str:
        """The name that GitHub displays."""
        return str(self.content.get("name", f"{FOLDER}/{self.file}"))

    def trigger(self, event: str) -> Mapping[str, Any] | None:
        """Return the settings of an event in ``on``; None if the workflow does not start on it."""
        on = self.content["on"]
        if not isinstance(on, Mapping):
            return {} if event in as_list(on) else None
        if event not in on:
            return None
        below = on[event]
        return below if isinstance(below, Mapping) else {}

    def called(self, job: str) -> Workflow | None:
        """Return the workflow that a job calls. Raises `WorkflowError` if it is not in this tree."""
        uses = self.jobs[job].get("uses")
        if uses is None:
            return None
        if not uses.startswith(f"./{FOLDER}/"):
            raise WorkflowError(f"{self.file}: {job}: calls {uses}, which is not in this tree")
        return read_workflow(self.tree, uses.removeprefix(f"./{FOLDER}/"))


def read_workflow(tree: Path, file: str) -> Workflow:
    """Read a workflow. Raises `WorkflowError` if it is missing."""
    return Workflow(tree, file, read_document(tree / FOLDER / file))


def check(workflow: Workflow, limit: Mapping[str, str] | None = None) -> None:
    """Raise `WorkflowError` for what this runner does not support, or for rights that a caller lacks.

    `limit` is as in `grant_permissions`. The other errors that keep a run from starting are those of GitHub's language
    service, which the tests of our workflows run first.
    """
    for name, job in workflow.jobs.items():
        where = f"{workflow.file}: {name}"
        inner = {key for step in job.get("steps", ()) for key in step if key in _UNSUPPORTED_IN_STEPS}
        unknown = [*(key for key in _UNSUPPORTED if key in job), *inner]
        if unknown:
            raise WorkflowError(f"{where}: {unknown[0]} is not supported")
        permissions = grant_permissions(workflow.content, job, limit, where)
        called = workflow.called(name)
        if called:
            check(called, permissions)


def call_inputs(called: Workflow, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``inputs`` of a called workflow. Raises `WorkflowError` for a value of another type."""
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
    """Return the ``inputs`` of a manual run, parsed from text. Raises `WorkflowError` where GitHub's API would fail."""
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


def sort_jobs(workflow: Workflow, last_first: bool = False) -> list[str]:
    """Sort the jobs so that each follows the jobs it needs, and otherwise as in the file, or the other way round.

    Raises `WorkflowError` if jobs need each other, or one that is missing.
    """
    found: list[str] = []
    left = {name: as_list(job.get("needs")) for name, job in workflow.jobs.items()}
    while left:
        ready = [name for name, needs in left.items() if set(needs) <= set(found)]
        if not ready:
            raise WorkflowError(f"{workflow.file}: {', '.join(left)}: need each other or a missing job")
        found.append(ready[-1 if last_first else 0])
        del left[found[-1]]
    return found


def ancestors(workflow: Workflow, job: str) -> set[str]:
    """Return every job that a job needs directly or indirectly; success() and failure() check all of them."""
    needs = as_list(workflow.jobs[job].get("needs"))
    return set(needs).union(*(ancestors(workflow, one) for one in needs))


LEVELS = ("none", "read", "write")

SCOPES = frozenset({
    *("actions", "artifact-metadata", "attestations", "checks", "contents", "deployments", "discussions", "id-token"),
    *("issues", "models", "packages", "pages", "pull-requests", "security-events", "statuses"),
})  # fmt: skip

DEFAULT = {"contents": "read", "packages": "read"}
"""Permissions of a workflow that states none, under GitHub's restricted default."""


def read_permissions(value: Any, where: str) -> dict[str, str]:
    """Parse a ``permissions`` key into granted scopes. Raises `WorkflowError` for an unknown scope or level."""
    if not isinstance(value, Mapping):
        raise WorkflowError(f"{where}: permissions are a mapping, not {value!r}")
    for scope, level in value.items():
        if scope not in SCOPES or level not in LEVELS:
            raise WorkflowError(f"{where}: unknown permission {scope}: {level}")
    return {scope: level for scope, level in value.items() if level != "none"}


def grant_permissions(
    workflow: Mapping[str, Any], job: Mapping[str, Any], limit: Mapping[str, str] | None, where: str
) -> dict[str, str]:
    """Return the permissions of a job: its own, else its workflow's, else its caller's.

    `limit` are the permissions of the calling job, or None without a caller. Raises `WorkflowError` if the job requests
    more, because a called workflow cannot raise them (GitHub's docs on reusing workflows).
    """
    stated = next((place["permissions"] for place in (job, workflow) if "permissions" in place), None)
    if stated is None:
        return dict(DEFAULT if limit is None else limit)
    found = read_permissions(stated, where)
    for scope, level in found.items():
        allowed = "write" if limit is None else limit.get(scope, "none")
        if LEVELS.index(level) > LEVELS.index(allowed):
            raise WorkflowError(f"{where}: requests {scope}: {level}, its caller has {scope}: {allowed}")
    return found
