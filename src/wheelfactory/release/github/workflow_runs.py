"""Workflow runs on GitHub: what the API says of one."""

from __future__ import annotations

from wheelfactory.core.errors import PublishError
from wheelfactory.core.models import FrozenModel, parse_model
from wheelfactory.release.github.client import Client


class RunRepository(FrozenModel, extra="ignore"):
    """A repository that a run names."""

    full_name: str


class WorkflowRun(FrozenModel, extra="ignore"):
    """A workflow run as the API returns it."""

    id: int
    event: str
    path: str
    """The workflow file; GitHub's description has ``OWNER/REPO/`` before it and ``@REF`` behind it in its examples."""
    head_repository: RunRepository | None
    """The repository of the run's commit: for a pull request of a fork, the fork. None once that is deleted."""


def read_run(client: Client, run_id: int) -> WorkflowRun:
    """Read a run of the client's repository. Raises `PublishError` if there is none."""
    answer = client.get(f"{client.url}/actions/runs/{run_id}")
    unexpected = PublishError("unexpected response from GitHub", f"run {run_id}", "check GITHUB_API_URL")
    return parse_model(WorkflowRun, answer, unexpected)
