"""Permissions of a job's token."""

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
