"""The settings of a repository that its workflows need. A fork begins without Issues, schedules and environments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wheelfactory.release.github.client import Client
from wheelfactory.release.github.responses import none_if_missing

ENVIRONMENTS = ("github-pages", "refresh", "release")
"""Those that the workflows name."""

_RIGHTS = "/actions/permissions/workflow"

SETTINGS = (
    ("", "has_issues", True, "Settings, General, Features: enable Issues"),
    ("/actions/permissions", "enabled", True, "Settings, Actions, General: allow actions"),
    (_RIGHTS, "default_workflow_permissions", "read", "Settings, Actions, General: read-only permissions"),
    (_RIGHTS, "can_approve_pull_request_reviews", True, "Settings, Actions, General: allow pull requests by Actions"),
    ("/pages", "build_type", "workflow", "Settings, Pages: source GitHub Actions"),
    ("/immutable-releases", "enabled", True, "Settings, General: enable immutable releases"),
    ("/labels/wheel-request", "name", "wheel-request", "Issues, Labels: create wheel-request"),
    ("/private-vulnerability-reporting", "enabled", True, "Settings, Security: private vulnerability reporting"),
)
"""The path of each setting below the repository, what GitHub's response has if it is on, and what to do if not."""


def find_missing_settings(client: Client) -> Iterator[str]:
    """Yield what is off, and what to do. Raises `PublishError` unless the token is an administrator's."""
    branch = client.get(client.url)["default_branch"]
    for path, name, wanted, remedy in SETTINGS:
        if _read(client, path).get(name) != wanted:
            yield remedy
    for one in _read(client, "/actions/workflows")["workflows"]:
        if one["state"] != "active":
            yield f"Actions, Enable workflow: {one['path']} is {one['state']}; forks begin so, and 60 idle days end so"
    if missing := {*ENVIRONMENTS} - {one["name"] for one in _read(client, "/environments")["environments"]}:
        yield f"Settings, Environments: create {', '.join(sorted(missing))}, for the tags v* and {branch}"
    deploying = _read(client, "/environments/github-pages/deployment-branch-policies")
    if deploying and "v*" not in [one["name"] for one in deploying["branch_policies"]]:
        yield "Settings, Environments, github-pages: allow the tags v*, or no site is deployed"
    if not _read(client, f"/rules/branches/{branch}"):
        yield f"Settings, Rules: protect {branch}, with code owners"
    if "active" not in [one["enforcement"] for one in _read(client, "/rulesets?targets=tag")]:
        yield "Settings, Rules: protect the tags v*"
    yield from _check_runner(client)


def _check_runner(client: Client) -> Iterator[str]:
    """Yield what is wrong with the runner of CK wheels; without a variable there are no such wheels."""
    label = _read(client, "/actions/variables/WHEELFACTORY_RUNNER").get("value", "")
    runners = _read(client, "/actions/runners?per_page=100")["runners"]
    if label.startswith("ubuntu-"):
        yield f"WHEELFACTORY_RUNNER is {label}, and no ROCm image fits its disk: docs/how-to/self-hosted-runners.md"
    elif label and label not in [each["name"] for one in runners for each in one["labels"]]:
        yield f"no runner has the label {label}: docs/how-to/self-hosted-runners.md"


def _read(client: Client, path: str) -> Any:
    """The response about a setting; empty if GitHub has none."""
    return none_if_missing(lambda: client.get(f"{client.url}{path}")) or {}
