"""`ci settings`: what a fork must have switched on, as GitHub describes its settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli, CommandResult
from fake_github import FakeGitHub
from fake_github.contract import example_setting
from fake_github.repository import OWNER_REPO
from wheelfactory.commands.ci.settings import ENVIRONMENTS
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.files import ROOT

WORKFLOWS, POLICIES = "/actions/workflows", "/environments/github-pages/deployment-branch-policies"
RUNNERS, VARIABLE = "/actions/runners", "/actions/variables/WHEELFACTORY_RUNNER"
RIGHTS_PATH = "/actions/permissions/workflow"
RIGHTS = {"default_workflow_permissions": "read", "can_approve_pull_request_reviews": True}


def named(path: str, key: str, *names: str) -> dict[str, Any]:
    """The example of a list, with entries of these names."""
    example = example_setting(path)
    return {**example, key: [{**example[key][0], "name": name} for name in names]}


def settings() -> dict[str, Any]:
    """Everything on, and the variable of a runner that is registered."""
    runners = named(RUNNERS, "runners", "one")
    runners["runners"][0]["labels"].append({"name": "mi300x", "type": "custom"})
    repository = {name: value for name, value in example_setting("").items() if name not in ("parent", "source")}
    policies = named("/environments/{environment_name}/deployment-branch-policies", "branch_policies", "main", "v*")
    return {
        "": {**repository, "language": None, "has_issues": True, "default_branch": "main"},
        "/actions/permissions": {"enabled": True, "allowed_actions": "all", "sha_pinning_required": True},
        RIGHTS_PATH: RIGHTS,
        WORKFLOWS: example_setting(WORKFLOWS),
        "/environments": named("/environments", "environments", *ENVIRONMENTS),
        POLICIES: policies,
        "/pages": {**example_setting("/pages"), "build_type": "workflow"},
        "/immutable-releases": {"enabled": True, "enforced_by_owner": False},
        "/labels/wheel-request": {**example_setting("/labels/{name}"), "name": "wheel-request"},
        "/rules/branches/main": example_setting("/rules/branches/{branch}")[:1],
        "/rulesets": [{**one, "enforcement": "active"} for one in example_setting("/rulesets")],
        "/private-vulnerability-reporting": {"enabled": True},
        VARIABLE: {**example_setting("/actions/variables/{name}"), "value": "mi300x"},
        RUNNERS: runners,
    }


@pytest.fixture
def check(github: FakeGitHub, _environ: None, cli: Cli) -> Callable[[dict[str, Any]], CommandResult]:
    """Runs `ci settings` for a repository with these settings."""

    def run(given: dict[str, Any]) -> CommandResult:
        github.repository.settings = given
        return cli("ci", "settings", f"github:{OWNER_REPO}")

    return run


def test_nothing_is_off(check: Callable[..., CommandResult]) -> None:
    given = settings()
    assert check(given) == CommandResult(DONE, "every setting is on\n", "")
    del given[VARIABLE]
    given[RUNNERS] = {**given[RUNNERS], "runners": []}
    assert check(given).code == DONE, "without the variable no runner is needed"


DISABLED = {"workflows": [{**example_setting(WORKFLOWS)["workflows"][0], "path": "a.yml", "state": "disabled_fork"}]}


@pytest.mark.parametrize(
    ("path", "changes", "problem"),
    [
        ("", {"has_issues": False}, "enable Issues"),
        ("/actions/permissions", {"enabled": False}, "allow actions"),
        (RIGHTS_PATH, {"default_workflow_permissions": "write"}, "read-only permissions"),
        (RIGHTS_PATH, {"can_approve_pull_request_reviews": False}, "allow pull requests by Actions"),
        (WORKFLOWS, DISABLED, "Actions, Enable workflow: a.yml is disabled_fork"),
        ("/environments", {"environments": []}, "create github-pages, refresh, release, for the tags v* and main"),
        (POLICIES, {"branch_policies": []}, "github-pages: allow the tags v*"),
        ("/pages", None, "source GitHub Actions"),
        ("/pages", {"build_type": "legacy"}, "source GitHub Actions"),
        ("/immutable-releases", None, "enable immutable releases"),
        ("/labels/wheel-request", None, "create wheel-request"),
        ("/rules/branches/main", [], "protect main"),
        ("/rulesets", [], "protect the tags v*"),
        ("/private-vulnerability-reporting", {"enabled": False}, "private vulnerability reporting"),
        (VARIABLE, {"value": "ubuntu-24.04"}, "WHEELFACTORY_RUNNER is ubuntu-24.04, and no ROCm image fits"),
        (RUNNERS, {"runners": []}, "no runner has the label mi300x"),
    ],
)
def test_what_is_off_is_named_with_what_to_do(
    check: Callable[..., CommandResult], path: str, changes: Any, problem: str
) -> None:
    given = settings()
    given[path] = {**given[path], **changes} if isinstance(changes, dict) else changes
    if changes is None:
        del given[path]
    shown = check(given)
    (line,) = shown.out.splitlines()
    assert (shown.code, problem in line) == (FAILED, True), line


def test_the_environments_are_those_of_the_workflows() -> None:
    texts = [path.read_text() for path in Path(ROOT, ".github/workflows").glob("*.yml")]
    assert {name for text in texts for name in re.findall(r"^ +environment: ([\w-]+)", text, re.MULTILINE)} == {
        *ENVIRONMENTS
    }
