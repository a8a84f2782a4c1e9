"""check.yml end to end on this machine: green without drift; with drift one issue, and a comment from then on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from published_site import make_torch_index, publish_cells, write_matrix_of_this_python
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.release.manifest import manifest_bytes, read_manifest
from workflows.events import dispatch, schedule
from workflows.expressions import Expressions
from workflows.factory_repository import make_repository, make_target
from workflows.results import Run
from workflows.runner import RunnerSetup, run_workflow

pytestmark = pytest.mark.slow

CELL = "fa2.8.3-rocm6.4-torch2.9.1-py3-triton"
WHEEL = "flash_attn-2.8.3+rocm64torch2.9triton-1-py3-none-any.whl"
GH = """\
for argument; do case "$argument" in --body-file=*) cat "${argument#--body-file=}" >> "$STATE/bodies" ;; esac; done
case "$1 $2" in
  "issue list") cat "$STATE/open" ;;
  "issue create") echo '[{"number": 9}]' > "$STATE/open" ;;
esac
"""


@pytest.fixture
def place(tmp_path: Path, evaluator: Expressions) -> RunnerSetup:
    """The repository with a release of one wheel in a directory, which is its own site, and a stand-in for torch."""
    tree, target = make_repository(tmp_path / "tree"), make_target(tmp_path)
    write_matrix_of_this_python(tree / "matrix.yaml")
    publish_cells(Path(target), {CELL: ""})
    torch = make_torch_index(tmp_path / "torch-index", [CELL])
    file = tree / ".github/workflows/check.yml"
    text, command = file.read_text(), './factory ci check "github:"'
    assert text.count(command) == 1
    file.write_text(text.replace(command, f"{command} --torch-index {torch}"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state/open").write_text("[]")
    return RunnerSetup(
        tree=tree,
        folder=tmp_path / "place",
        expressions=evaluator,
        variables={"WHEELFACTORY_SITE": Path(target).as_uri()},
        environ={"STATE": str(tmp_path / "state"), "WHEELFACTORY_TARGET": target},
        stand_ins={"gh": GH},
    )


def gh_calls(run: Run) -> list[str]:
    return [" ".join(call.argv[1:3]) for call in run.calls("gh")]


def test_a_site_as_it_was_published_is_green_and_opens_no_issue(place: RunnerSetup) -> None:
    run = run_workflow(place, "check.yml", schedule("41 5 * * 3"))
    assert run.result == "success", run.output()
    assert run.job("report").result == "skipped"
    assert run.calls("gh") == []
    report = (run.artifacts / "log-check/report.txt").read_text()
    assert ": no drift; 1 wheel in the sample\n" in report
    assert "  passed   import after uv\n" in report
    assert run.job("check").permissions == {"contents": "read"}
    step = run.job("check").step("Compare the site with it, and install a sample of the wheels")
    assert not step.saw_token, "the code of wheels runs there"


def test_drift_is_red_and_opens_one_issue_and_a_second_drift_comments_on_it(place: RunnerSetup, tmp_path: Path) -> None:
    target = Path(place.environ["WHEELFACTORY_TARGET"])
    rows = [row.model_copy(update={"yanked": "wrong numbers"}) for row in read_manifest(target)]
    (target / MANIFEST_NAME).write_bytes(manifest_bytes(rows))  # its index does not say so; no wheel is installed
    first = run_workflow(place, "check.yml", dispatch())
    assert (first.result, first.job("check").result, first.job("report").result) == ("failure", "failure", "success")
    assert gh_calls(first) == ["issue list", "label create", "issue create"]
    assert first.job("report").permissions == {"contents": "read", "issues": "write"}
    second = run_workflow(place, "check.yml", schedule("41 5 * * 3"), previous=first)
    assert second.result == "failure"
    assert gh_calls(second) == ["issue list", "issue comment"]
    bodies = (tmp_path / "state/bodies").read_text()
    assert bodies.count(f"flash-attn/index.html: expected the link of the manifest to {WHEEL}, found another link") == 4
    assert "https://github.com/someone/wheels/actions/runs/1002" in bodies


def test_a_check_that_fails_before_it_has_a_report_opens_the_issue_too(place: RunnerSetup, tmp_path: Path) -> None:
    broken = replace(place, environ={**place.environ, "WHEELFACTORY_TARGET": str(tmp_path / "nowhere")})
    run = run_workflow(broken, "check.yml", dispatch())
    assert run.job("report").result == "success", run.output()
    assert gh_calls(run) == ["issue list", "label create", "issue create"]
    assert "none: the job ended before it could write one." in (tmp_path / "state/bodies").read_text()
