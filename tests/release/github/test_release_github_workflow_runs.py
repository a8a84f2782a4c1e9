"""Workflow runs as GitHub describes them: what `ci check-run` reads, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from command_line import Cli, CommandResult
from fake_github import FakeGitHub
from fake_github.contract import example_run
from fake_github.repository import OWNER_REPO
from wheelfactory.core.errors import BAD_INPUT, DONE, FAILED, InputError, PublishError
from wheelfactory.release.bundle import BUILD_WORKFLOW
from wheelfactory.release.github.client import Client
from wheelfactory.release.github.workflow_runs import RunRepository, WorkflowRun, read_run, require_own_run


@pytest.fixture
def check_run(github: FakeGitHub, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """Runs `ci check-run` for a run that GitHub describes with these changes."""
    for name, value in github.environ().items():
        monkeypatch.setenv(name, value)

    def check(repository: str = OWNER_REPO, **changes: object) -> CommandResult:
        github.repository.runs[1001] = example_run(repository, id=1001, **changes)
        return cli("ci", "check-run", f"github:{OWNER_REPO}", "1001")

    return check


def test_a_run_is_read_as_github_describes_it(github: FakeGitHub, client: Client) -> None:
    github.repository.runs[1001] = example_run("else/fork", id=1001, event="pull_request")
    run = read_run(client, 1001)
    assert run.head_repository
    assert (run.id, run.event, run.head_repository.full_name) == (1001, "pull_request", "else/fork")
    assert run.path == ".github/workflows/build.yml@main", "the example in the description"


def test_a_missing_run_is_an_error(client: Client) -> None:
    with pytest.raises(PublishError, match=r"not found on GitHub: GET .*/actions/runs/1001: HTTP 404"):
        read_run(client, 1001)


def test_an_own_run_is_accepted(check_run: Callable[..., CommandResult]) -> None:
    shown = check_run(event="workflow_dispatch")
    assert (shown.code, shown.out) == (DONE, "")
    assert shown.err == f"run 1001: .github/workflows/build.yml@main on workflow_dispatch in {OWNER_REPO}\n"


@pytest.mark.parametrize(
    ("repository", "changes"),
    [("else/wheels", {}), (OWNER_REPO, {"event": "pull_request"}), (OWNER_REPO, {"path": ".github/workflows/ci.yml"})],
    ids=["a fork", "a pull request", "another workflow"],
)
def test_any_other_run_fails_the_step(
    check_run: Callable[..., CommandResult], repository: str, changes: dict[str, object]
) -> None:
    shown = check_run(repository, **changes)
    assert (shown.code, shown.out) == (BAD_INPUT, "")
    assert [line.partition(":")[0] for line in shown.err.splitlines()] == ["error", "hint"]


def test_an_unknown_run_fails_the_step(check_run: Callable[..., CommandResult], cli: Cli) -> None:
    check_run()
    assert cli("ci", "check-run", f"github:{OWNER_REPO}", "1002").code == FAILED


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(("wheelhouse", "1001"), "not a repository: wheelhouse"), ((f"github:{OWNER_REPO}", "../1001"), "bad arguments")],
)
def test_bad_arguments_are_refused(cli: Cli, arguments: tuple[str, str], error: str) -> None:
    shown = cli("ci", "check-run", *arguments)
    assert (shown.code, shown.err.splitlines()[0].startswith(f"error: {error}")) == (BAD_INPUT, True)


REPOSITORY = "someone/wheels"
OWN = WorkflowRun(id=1001, event="push", path=BUILD_WORKFLOW, head_repository=RunRepository(full_name=REPOSITORY))


@pytest.mark.parametrize("event", ["push", "workflow_dispatch"])
@pytest.mark.parametrize(
    "path",
    [BUILD_WORKFLOW, f"{BUILD_WORKFLOW}@main", f"{REPOSITORY}/{BUILD_WORKFLOW}@refs/tags/v1"],
    ids=["alone", "with a ref", "with repository and ref"],
)
@pytest.mark.parametrize("repository", [REPOSITORY, "SomeOne/Wheels"])
def test_a_run_of_this_workflow_is_accepted(event: str, path: str, repository: str) -> None:
    require_own_run(OWN.model_copy(update={"event": event, "path": path}), repository)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(
            {"head_repository": RunRepository(full_name="else/wheels")},
            "its repository is else/wheels, not someone/wheels",
            id="a fork",
        ),
        pytest.param({"head_repository": None}, "its repository is a deleted repository", id="a deleted fork"),
        pytest.param(
            {"event": "pull_request"}, "its event is pull_request, not push or workflow_dispatch", id="a pull request"
        ),
        pytest.param({"event": "schedule"}, "its event is schedule", id="another event"),
        pytest.param(
            {"path": ".github/workflows/ci.yml"},
            "its workflow file is .github/workflows/ci.yml, not .github/workflows/build.yml",
            id="another workflow",
        ),
        pytest.param(
            {"path": ".github/workflows/Build.yml"},
            "its workflow file is .github/workflows/Build.yml",
            id="another case, which is another file",
        ),
        pytest.param(
            {"path": ".github/workflows/_build_rocm.yml@.github/workflows/build.yml"},
            "its workflow file is .github/workflows/_build_rocm.yml",
            id="a ref that looks like the workflow",
        ),
        pytest.param(
            {"path": "else/wheels/.github/workflows/build.yml@main"},
            "its workflow file is else/wheels/.github/workflows/build.yml",
            id="the workflow of another repository",
        ),
    ],
)
def test_any_other_run_is_refused_with_what_differs(change: dict[str, object], found: str) -> None:
    with pytest.raises(InputError) as refused:
        require_own_run(OWN.model_copy(update=change), REPOSITORY)
    assert str(refused.value).startswith(f"cannot use the kernels of this run: run 1001: {found}")
    assert "without `previous-run`" in refused.value.hint
