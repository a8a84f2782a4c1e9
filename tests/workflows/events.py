"""What starts a run, as the ``github`` context tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REPOSITORY = "someone/wheels"
SHA = "5ca1ab1e" * 5
BRANCH = "main"

_ABOUT = {"repository": {"name": "wheels", "full_name": REPOSITORY, "default_branch": BRANCH}}
"""What most payloads have."""


@dataclass(frozen=True)
class Event:
    """An event, with what of its payload our workflows may read."""

    name: str
    ref: str = f"refs/heads/{BRANCH}"
    payload: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ref_name(self) -> str:
        """The branch or tag."""
        return self.ref.split("/", 2)[2]

    @property
    def ref_type(self) -> str:
        """``branch`` or ``tag``."""
        return "tag" if self.ref.startswith("refs/tags/") else "branch"


def push_tag(tag: str) -> Event:
    """Someone pushed a tag."""
    return Event("push", f"refs/tags/{tag}", _ABOUT)


def push(branch: str = BRANCH) -> Event:
    """Someone pushed to a branch."""
    return Event("push", f"refs/heads/{branch}", _ABOUT)


def dispatch(branch: str = BRANCH) -> Event:
    """Someone started the workflow by hand; the inputs are given to `run_workflow`."""
    return Event("workflow_dispatch", f"refs/heads/{branch}", _ABOUT)


def schedule(cron: str) -> Event:
    """It is time. Whether the payload has the repository too is not documented, so it has not."""
    return Event("schedule", payload={"schedule": cron})


def issue(body: str, labels: tuple[str, ...] = (), number: int = 7, action: str = "opened") -> Event:
    """Someone wrote an issue."""
    about = {"number": number, "body": body, "labels": [{"name": name} for name in labels]}
    return Event("issues", payload={**_ABOUT, "action": action, "issue": about})


def github_context(event: Event, run_id: int, workflow: str) -> dict[str, Any]:
    """The ``github`` context of a run, without what differs between its jobs."""
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
        "run_attempt": "1",
        "workflow": workflow,
        "server_url": "https://github.com",
        "api_url": "https://api.github.com",
    }


def github_environ(context: Mapping[str, Any]) -> dict[str, str]:
    """The variables that GitHub makes of it for every step."""
    hidden = ("event", "token")
    return {f"GITHUB_{name.upper()}": str(value) for name, value in context.items() if name not in hidden}
