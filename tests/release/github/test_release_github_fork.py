"""`ci check-fork`: what a fork must have switched on, as GitHub describes its settings."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli, CommandResult
from fake_github import FakeGitHub
from fake_github.contract import example_setting
from fake_github.repository import OWNER_REPO
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.files import ROOT
from wheelfactory.release.github.fork import ENVIRONMENTS, RUNNER_VARIABLE, SETTINGS

WORKFLOWS, POLICIES = "/actions/workflows", "/environments/github-pages/deployment-branch-policies"
RUNNERS, VARIABLE = "/actions/runners", f"/actions/variables/{RUNNER_VARIABLE}"
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
        "/actions/permissions/workflow": RIGHTS,
        WORKFLOWS: example_setting(WORKFLOWS),
        "/environments": named("/environments", "environments", *ENVIRONMENTS),
        POLICIES: policies,
        "/pages": {**example_setting("/pages"), "build_type": "workflow"},
        "/immutable-releases": {"enabled": True, "enforced_by_owner": False},
        "/labels/wheel-request": example_setting("/labels/{name}"),
        "/rules/branches/main": example_setting("/rules/branches/{branch}")[:1],
        "/rulesets": [{**one, "enforcement": "active"} for one in example_setting("/rulesets")],
        "/private-vulnerability-reporting": {"enabled": True},
        VARIABLE: {**example_setting("/actions/variables/{name}"), "name": RUNNER_VARIABLE, "value": "mi300x"},
        RUNNERS: runners,
    }


@pytest.fixture
def check(github: FakeGitHub, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], CommandResult]:
    """Runs `ci check-fork` for a repository with these settings."""
    for name, value in github.environ().items():
        monkeypatch.setenv(name, value)

    def run(given: dict[str, Any]) -> CommandResult:
        github.repository.settings = given
        return cli("ci", "check-fork", f"github:{OWNER_REPO}")

    return run


def test_everything_that_is_on_is_named(check: Callable[..., CommandResult]) -> None:
    shown = check(settings())
    assert (shown.code, shown.err) == (DONE, "")
    assert shown.out.splitlines() == [f"ok   {one.name}" for one in SETTINGS] + ["ok   runner for CK wheels"]


@pytest.mark.parametrize(
    ("path", "changes", "line"),
    [
        ("", {"has_issues": False}, "off  Issues: Settings, General, Features: enable Issues"),
        ("/actions/permissions", {"allowed_actions": "local_only"}, "off  actions: Settings, Actions"),
        ("/actions/permissions/workflow", {"default_workflow_permissions": "write"}, "off  rights of workflows: "),
        ("/actions/permissions/workflow", {"can_approve_pull_request_reviews": False}, "off  rights of workflows: "),
        ("/environments", None, "off  environments: github-pages, refresh, release; Settings, Environments"),
        (POLICIES, {"branch_policies": []}, "off  tags that deploy the site: Settings, Environments, github-pages"),
        ("/pages", None, "off  Pages: Settings, Pages: source GitHub Actions"),
        ("/pages", {"build_type": "legacy"}, "off  Pages: "),
        ("/immutable-releases", None, "off  immutable releases: "),
        ("/labels/wheel-request", None, "off  label wheel-request: "),
        ("/rules/branches/main", [], "off  rules of the default branch: "),
        ("/rulesets", [], "off  rules of the tags v*: "),
        ("/private-vulnerability-reporting", {"enabled": False}, "off  private vulnerability reporting: "),
        (VARIABLE, {"value": "ubuntu-24.04"}, "off  runner for CK wheels: WHEELFACTORY_RUNNER is ubuntu-24.04, and no"),
        (RUNNERS, {"runners": []}, "off  runner for CK wheels: no runner has the label mi300x; start one"),
    ],
)
def test_what_is_off_is_named_with_what_to_do(
    check: Callable[..., CommandResult], path: str, changes: Any, line: str
) -> None:
    given = settings()
    if changes is None:
        del given[path]
    else:
        given[path] = {**given[path], **changes} if isinstance(changes, dict) else changes
    shown = check(given)
    (off,) = (each for each in shown.out.splitlines() if each.startswith("off"))
    assert off.startswith(line)
    assert shown.code == FAILED


def test_disabled_workflows_are_named(check: Callable[..., CommandResult]) -> None:
    given = copy.deepcopy(settings())
    given[WORKFLOWS]["workflows"][0] |= {"path": ".github/workflows/check.yml", "state": "disabled_fork"}
    assert "off  schedules and workflows: .github/workflows/check.yml is disabled_fork; Actions" in check(given).out


def test_without_the_variable_no_runner_is_needed(check: Callable[..., CommandResult]) -> None:
    given = settings()
    del given[VARIABLE], given[RUNNERS]
    assert check(given).code == DONE


def test_the_environments_are_those_of_the_workflows() -> None:
    texts = [path.read_text() for path in Path(ROOT, ".github/workflows").glob("*.yml")]
    assert {name for text in texts for name in re.findall(r"^ +environment: ([\w-]+)", text, re.MULTILINE)} == {
        *ENVIRONMENTS
    }
