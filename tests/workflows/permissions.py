"""What the token of a job may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflows.document import WorkflowError

LEVELS = ("none", "read", "write")

SCOPES = frozenset({
    *("actions", "artifact-metadata", "attestations", "checks", "contents", "deployments", "discussions", "id-token"),
    *("issues", "models", "packages", "pages", "pull-requests", "security-events", "statuses"),
})  # fmt: skip

DEFAULT = {"contents": "read", "packages": "read"}
"""Of a workflow that says nothing, in a repository with GitHub's restricted default."""


def read_permissions(value: Any, where: str) -> dict[str, str]:
    """A ``permissions`` key as scopes that are granted. Raises `WorkflowError` for what GitHub does not know."""
    if value in ("read-all", "write-all"):
        return dict.fromkeys(sorted(SCOPES), value.partition("-")[0])
    if not isinstance(value, Mapping):
        raise WorkflowError(f"{where}: permissions are a mapping, not {value!r}")
    for scope, level in value.items():
        if scope not in SCOPES or level not in LEVELS:
            raise WorkflowError(f"{where}: there is no permission {scope}: {level}")
    return {scope: level for scope, level in value.items() if level != "none"}


def granted(
    workflow: Mapping[str, Any], job: Mapping[str, Any], most: Mapping[str, str] | None, where: str
) -> dict[str, str]:
    """The permissions of a job: its own, else its workflow's, else what its caller has.

    `most` is what the calling job has, None where there is none. Raises `WorkflowError` where more is asked than that:
    a called workflow can only have less (GitHub's docs on reusing workflows).
    """
    stated = next((place["permissions"] for place in (job, workflow) if "permissions" in place), None)
    if stated is None:
        return dict(DEFAULT if most is None else most)
    found = read_permissions(stated, where)
    for scope, level in found.items():
        held = "write" if most is None else most.get(scope, "none")
        if LEVELS.index(level) > LEVELS.index(held):
            raise WorkflowError(f"{where}: asks for {scope}: {level}, and may have {scope}: {held}")
    return found
