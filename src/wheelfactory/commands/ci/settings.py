"""`wheelfactory ci settings`: the settings that workflows need and a repository lacks.

A fork begins without Issues, schedules and environments.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from wheelfactory.commands.options import print_results
from wheelfactory.commands.targets import add_target, open_client
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.progress import log_to_stderr
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


class _Setting(FrozenModel, extra="allow"):
    """GitHub's response about a setting; without fields if there is none."""


class _Entry(FrozenModel, extra="ignore"):
    """An entry of one of GitHub's lists of settings."""

    name: str = ""
    path: str = ""
    state: str = ""
    enforcement: str = ""
    labels: tuple[_Entry, ...] = ()


def find_missing_settings(client: Client) -> Iterator[str]:
    """Yield what is off, and what to do. Raises `PublishError` unless the token is an administrator's."""
    branch = getattr(client.get(client.url, _Setting), "default_branch", "main")
    for path, name, wanted, remedy in SETTINGS:
        if _read(client, path, name) != wanted:
            yield remedy
    for one in _list(client, "/actions/workflows", "workflows") or ():
        if one.state != "active":
            yield f"Actions, Enable workflow: {one.path} is {one.state}; forks begin so, and 60 idle days end so"
    if missing := {*ENVIRONMENTS} - {one.name for one in _list(client, "/environments", "environments") or ()}:
        yield f"Settings, Environments: create {', '.join(sorted(missing))}, for the tags v* and {branch}"
    policies = _list(client, "/environments/github-pages/deployment-branch-policies", "branch_policies")
    if policies is not None and "v*" not in [one.name for one in policies]:
        yield "Settings, Environments, github-pages: allow the tags v*, or no site is deployed"
    if not _list(client, f"/rules/branches/{branch}"):
        yield f"Settings, Rules: protect {branch}, with code owners"
    if "active" not in [one.enforcement for one in _list(client, "/rulesets?targets=tag") or ()]:
        yield "Settings, Rules: protect the tags v*"
    yield from _check_runner(client)


def _check_runner(client: Client) -> Iterator[str]:
    """Yield what is wrong with the runner of CK wheels; without a variable there are no such wheels."""
    label = str(_read(client, "/actions/variables/WHEELFACTORY_RUNNER", "value") or "")
    runners = _list(client, "/actions/runners", "runners") or ()
    if label.startswith("ubuntu-"):
        yield f"WHEELFACTORY_RUNNER is {label}, and no ROCm image fits its disk: docs/how-to/self-hosted-runners.md"
    elif label and label not in [each.name for one in runners for each in one.labels]:
        yield f"no runner has the label {label}: docs/how-to/self-hosted-runners.md"


def _read(client: Client, path: str, name: str) -> object:
    """A field of the response about a setting; None if GitHub has none."""
    return getattr(none_if_missing(lambda: client.get(f"{client.url}{path}", _Setting)), name, None)


def _list(client: Client, path: str, name: str = "") -> list[_Entry] | None:
    """The entries of a list of settings; None if GitHub has none."""
    return none_if_missing(lambda: [*client.list_entries(f"{client.url}{path}", _Entry, name)])


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser, "github:OWNER/REPO")
    parser.epilog = "example: GITHUB_TOKEN=$(gh auth token) wheelfactory ci settings github:OWNER/REPO"


def execute(options: argparse.Namespace) -> int:
    """Print what a repository lacks that its workflows need, and what to do; exit code 1 if it lacks anything."""
    client = open_client(options.target, options.environ)

    with log_to_stderr():
        found = list(find_missing_settings(client))
    print_results(*(found or ["every setting is on"]))
    return FAILED if found else DONE
