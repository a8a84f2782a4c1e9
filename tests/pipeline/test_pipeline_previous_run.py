"""Kernels of an earlier run are used only if the build workflow of this repository compiled them."""

from __future__ import annotations

import pytest

from wheelfactory.core.errors import InputError
from wheelfactory.pipeline.previous_run import require_own_run
from wheelfactory.release.bundle import BUILD_WORKFLOW
from wheelfactory.release.github.workflow_runs import RunRepository, WorkflowRun

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
