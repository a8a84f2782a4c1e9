"""The settings of a repository that its workflows need: what each is for GitHub's API, and what to do if it is off.

A fork begins without Issues, schedules and environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import requests

from wheelfactory.release.github.client import Client
from wheelfactory.release.github.responses import RefusedError

ENVIRONMENTS = ("github-pages", "refresh", "release")
"""Those that the workflows name."""

RUNNER_VARIABLE = "WHEELFACTORY_RUNNER"

_RIGHTS = {"default_workflow_permissions": "read", "can_approve_pull_request_reviews": True}


class Setting(NamedTuple):
    """A setting, where the API has it, what is wrong there (false if nothing is), and what to do then."""

    name: str
    path: str
    """Below the address of the repository; ``BRANCH`` is the default branch."""
    wrong: Callable[[Any], object]
    """Called with the response; an empty mapping if GitHub responds 404."""
    remedy: str


SETTINGS = (
    Setting("Issues", "", lambda found: not found.get("has_issues"), "Settings, General, Features: enable Issues"),
    Setting(
        "actions",
        "/actions/permissions",
        lambda found: not found.get("enabled") or found.get("allowed_actions") == "local_only",
        "Settings, Actions, General: allow actions",
    ),
    Setting(
        "rights of workflows",
        "/actions/permissions/workflow",
        lambda found: [found.get(name) for name in _RIGHTS] != [*_RIGHTS.values()],
        "Settings, Actions, General: read-only permissions, and allow pull requests by Actions for the weekly refresh",
    ),
    Setting(
        "schedules and workflows",
        "/actions/workflows",
        lambda found: [f"{one['path']} is {one['state']}" for one in found["workflows"] if one["state"] != "active"],
        "Actions, the workflow, Enable workflow: schedules are off in a fork, and after 60 days without a commit",
    ),
    Setting(
        "environments",
        "/environments",
        lambda found: {*ENVIRONMENTS} - {one["name"] for one in found.get("environments", ())},
        "Settings, Environments: create it, for tags v* and the branch on which you start workflows; with required "
        "reviewers of `release` a release waits for approval before its cells are built",
    ),
    Setting(
        "tags that deploy the site",
        "/environments/github-pages/deployment-branch-policies",
        lambda found: found and "v*" not in [one["name"] for one in found["branch_policies"]],
        "Settings, Environments, github-pages: allow the tags v*",
    ),
    Setting(
        "Pages",
        "/pages",
        lambda found: found.get("build_type") != "workflow",
        "Settings, Pages: source GitHub Actions",
    ),
    Setting(
        "immutable releases",
        "/immutable-releases",
        lambda found: not found.get("enabled"),
        "Settings, General, Releases: enable them",
    ),
    Setting(
        "label wheel-request", "/labels/wheel-request", lambda found: not found, "Issues, Labels: create wheel-request"
    ),
    Setting(
        "rules of the default branch",
        "/rules/branches/BRANCH",
        lambda found: not found,
        "Settings, Rules: require pull requests and the review of code owners",
    ),
    Setting(
        "rules of the tags v*",
        "/rulesets?targets=tag",
        lambda found: not [one for one in found if one["enforcement"] == "active"],
        "Settings, Rules: restrict who creates, changes and deletes the tags v*",
    ),
    Setting(
        "private vulnerability reporting",
        "/private-vulnerability-reporting",
        lambda found: not found.get("enabled"),
        "Settings, Security: enable it (SECURITY.md)",
    ),
)


def check_fork(client: Client) -> Iterator[tuple[str, str]]:
    """Yield each setting with what is off and what to do; empty if it is on. The token must be of an administrator."""
    branch = client.get(client.url)["default_branch"]
    for setting in SETTINGS:
        wrong = setting.wrong(_read(client, setting.path.replace("BRANCH", branch)))
        named = f"{', '.join(sorted(wrong))}; " if isinstance(wrong, list | set) else ""
        yield setting.name, f"{named}{setting.remedy}" if wrong else ""
    yield "runner for CK wheels", _runner_problem(client)


def _runner_problem(client: Client) -> str:
    """What is wrong with the runner that the repository variable names; empty without a variable: no CK wheels then."""
    label = _read(client, f"/actions/variables/{RUNNER_VARIABLE}").get("value", "")
    if label.startswith("ubuntu-"):
        return f"{RUNNER_VARIABLE} is {label}, and no ROCm image fits its disk; docs/how-to/self-hosted-runners.md"
    runners = _read(client, "/actions/runners?per_page=100").get("runners", ()) if label else ()
    if label and not [one for one in runners if label in [each["name"] for each in one["labels"]]]:
        return f"no runner has the label {label}; start one: docs/how-to/self-hosted-runners.md"
    return ""


def _read(client: Client, path: str) -> Any:
    try:
        return client.get(f"{client.url}{path}")
    except RefusedError as refused:
        if refused.status == requests.codes.not_found:
            return {}
        raise
