"""The other workflows end to end on this machine: one combination, wheel requests, weekly refresh."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from published_site import publish_cells
from small_matrix import edited
from wheelfactory.core.cell import OFFERED_PRODUCTS
from workflows.events import dispatch, issue, schedule
from workflows.expressions import Expressions
from workflows.factory_repository import make_repository, make_target, triton_place
from workflows.results import Run
from workflows.runner import RunnerSetup, run_workflow

pytestmark = pytest.mark.slow

VERSIONS = {
    "flash-attn-version": "2.8.3",
    "python-version": "3.12",
    "torch-version": "2.13.0",
    "rocm-version": "7.2",
}
CK, TRITON = "fa2.8.3-rocm7.2-torch2.13.0-cp312-ck", "fa2.8.3-rocm7.2-torch2.13.0-py3-triton"
BUILDS = ("release/plain", "release/cells/build", "release/cells/verify", "release/pages/site", "release/pages/deploy")
BODY = "### torch\n\n2.13.0\n\n### ROCm\n\n7.2\n\n### Backend\n\ntriton\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, cache: Path, evaluator: Expressions) -> RunnerSetup:
    return triton_place(tmp_path_factory.mktemp("other") / "place", cache, evaluator)


@pytest.fixture
def place(repository: RunnerSetup, tmp_path: Path) -> RunnerSetup:
    return replace(repository, folder=tmp_path)


def run_versions(place: RunnerSetup, **inputs: str) -> Run:
    return run_workflow(place, "_build_rocm.yml", dispatch(), inputs={**VERSIONS, **inputs}, unexecuted=BUILDS)


def test_four_versions_are_one_ck_cell_that_compiles_its_own_kernels_on_the_configured_runner(
    place: RunnerSetup,
) -> None:
    configured = replace(place, variables={"WHEELFACTORY_RUNNER": "mi300x"})
    run = run_versions(configured, **{"is-upload": "false"})
    assert run.result == "success", run.output()
    cell, *products = run.jobs_at("release/cells")
    assert (cell.matrix["cells"], cell.matrix["kernel-sets"]) == (CK, "")
    assert [job.matrix["cells"] for job in products] == [*OFFERED_PRODUCTS]
    assert [job.runner for job in run.jobs_at("release/cells/build")] == ["mi300x", "ubuntu-24.04", "ubuntu-24.04"]
    jobs = ("release/approve", "release/cells/upload", "release/publish", "reconcile")
    assert {run.jobs_at(name)[0].result for name in jobs} == {"skipped"}, "nothing is published"


def test_the_optional_triton_cell_uses_a_hosted_runner(place: RunnerSetup) -> None:
    run = run_versions(place, **{"build-triton-backend": "true", "runner": "mi300x", "is-upload": "false"})
    assert [job.matrix["cells"] for job in run.jobs_at("release/cells")] == [CK, TRITON, *OFFERED_PRODUCTS]
    assert [job.runner for job in run.jobs_at("release/cells/build")] == ["mi300x"] + ["ubuntu-24.04"] * 3


def test_a_cell_that_is_not_published_fails_the_run(place: RunnerSetup) -> None:
    run = run_versions(place, runner="mi300x")
    assert f"missing  {CK}: not published" in run.job("reconcile").output, "no job of the cell ran"
    assert run.result == "failure"


def test_without_any_runner_a_ck_cell_is_refused(place: RunnerSetup) -> None:
    run = run_versions(place)
    assert "set the repository variable WHEELFACTORY_RUNNER" in run.job("select").output
    assert (run.result, run.job("release").result) == ("failure", "skipped")


def test_excluded_versions_fail_the_run_with_the_reason(place: RunnerSetup) -> None:
    run = run_versions(place, **{"torch-version": "2.5.1"})
    assert run.result == "failure"
    assert "torch 2.5.1 is not on the ROCm 7.2 index" in run.job("select").output
    assert run.job("release").result == "skipped"


def test_a_wheel_request_is_answered_in_a_comment(place: RunnerSetup) -> None:
    asked = replace(place, stand_ins={"gh": "cat answer.md"}, variables={"WHEELFACTORY_SITE": "https://site.test"})
    run = run_workflow(asked, "request.yml", issue(BODY, ("wheel-request",)))
    assert [call.argv[1:4] for call in run.calls("gh")] == [("issue", "comment", "7")]
    assert "https://site.test/?torch=2.13.0&rocm=7.2&backend=triton" in run.job("answer").output


def test_another_issue_gets_no_answer(place: RunnerSetup) -> None:
    run = run_workflow(place, "request.yml", issue("hello"))
    assert run.job("answer").result == "skipped"
    assert run.calls("gh") == []


GH = """\
for argument; do case "$argument" in --body-file=*) cat "${argument#--body-file=}" >> "$STATE" ;; esac; done
case "$2" in list) echo "[]" ;; create) echo https://github.com/someone/wheels/7 ;; esac
"""


def test_the_weekly_refresh_proposes_what_it_wrote_and_reports_what_it_could_not(
    tmp_path: Path, evaluator: Expressions
) -> None:
    """No source can be reached here; what follows from the matrix is behind it. Locking packages asks PyPI alone."""
    tree, origin, git = make_repository(tmp_path / "tree"), tmp_path / "origin.git", shutil.which("git")
    (tree / "matrix.yaml").write_text(edited())
    for command in (
        ("add", "--all"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", "first"),
        ("branch", "--move", "main"),
        ("clone", "--quiet", "--bare", ".", str(origin)),
        ("remote", "add", "origin", str(origin)),
    ):
        subprocess.run(["git", *command], cwd=tree, check=True)
    target = make_target(tmp_path)
    publish_cells(Path(target), {"fa2.8.3-rocm6.4-torch2.9.1-py3-triton": ""})
    place = RunnerSetup(
        tree,
        tmp_path / "place",
        evaluator,
        environ={"STATE": str(tmp_path / "bodies"), "WHEELFACTORY_TARGET": target},
        stand_ins={"gh": GH, "git": f'test -d .git || cp -r {tree}/.git .\nexec {git} "$@"'},
    )
    run = run_workflow(place, "refresh.yml", schedule("17 4 * * 1"), unexecuted=["packages"])
    assert run.results() == {"refresh": ["success"], "packages": ["success"]}, run.output()
    called = [" ".join(call.argv[1:3]) for call in run.calls("gh")]
    assert called == ["pr list", "pr create", "issue list", "label create", "issue create"]
    names = subprocess.run(
        ["git", "diff", "--name-only", "main", "refresh"], cwd=origin, capture_output=True, text=True, check=True
    )
    assert names.stdout.split() == ["README.md", "docs/packages.md", "tests/data/cells.txt"]
    assert "failed     cannot read an index: ROCm 6.4" in (tmp_path / "bodies").read_text()
