"""Events that start a run, and the ``github`` context of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REPOSITORY = "someone/wheels"
SHA = "5ca1ab1e" * 5
BRANCH = "main"

_REPOSITORY_PAYLOAD = {"repository": {"name": "wheels", "full_name": REPOSITORY, "default_branch": BRANCH}}
"""Part of most payloads."""


@dataclass(frozen=True)
class Event:
    """An event with the part of its payload that our workflows can read."""

    name: str
    ref: str = f"refs/heads/{BRANCH}"
    payload: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ref_name(self) -> str:
        return self.ref.split("/", 2)[2]

    @property
    def ref_type(self) -> str:
        return "tag" if self.ref.startswith("refs/tags/") else "branch"


def push_tag(tag: str) -> Event:
    return Event("push", f"refs/tags/{tag}", _REPOSITORY_PAYLOAD)


def push(branch: str = BRANCH) -> Event:
    return Event("push", f"refs/heads/{branch}", _REPOSITORY_PAYLOAD)


def dispatch(branch: str = BRANCH) -> Event:
    """A manual start; pass the inputs to `run_workflow`."""
    return Event("workflow_dispatch", f"refs/heads/{branch}", _REPOSITORY_PAYLOAD)


def schedule(cron: str) -> Event:
    # without the repository, because GitHub does not document it in this payload
    return Event("schedule", payload={"schedule": cron})


def issue(body: str, labels: tuple[str, ...] = (), number: int = 7, action: str = "opened") -> Event:
    about = {"number": number, "body": body, "labels": [{"name": name} for name in labels]}
    return Event("issues", payload={**_REPOSITORY_PAYLOAD, "action": action, "issue": about})


def github_context(event: Event, run_id: int, workflow: str, attempt: int = 1) -> dict[str, Any]:
    """Return the ``github`` context of a run, without the fields that differ between jobs."""
    return {
        "event_name": event.name,
        "event": {**event.payload},
        "ref": event.ref,
        "ref_name": event.ref_name,
        "ref_type": event.ref_type,
        "sha": SHA,
        "repository": REPOSITORY,
        "repository_owner": REPOSITORY.partition("/")[0],
        "actor": "someone",
        "run_id": str(run_id),
        "run_number": "1",
        "run_attempt": str(attempt),
        "workflow": workflow,
        "server_url": "https://github.com",
        "api_url": "https://api.github.com",
    }


def github_environ(context: Mapping[str, Any]) -> dict[str, str]:
    """Return the GITHUB_* variables of every step."""
    hidden = ("event", "token")
    return {f"GITHUB_{name.upper()}": str(value) for name, value in context.items() if name not in hidden}
