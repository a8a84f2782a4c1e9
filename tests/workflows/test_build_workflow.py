"""build.yml as a whole, on this machine: what is planned is built, published and accounted for, or the run is red."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from small_release import SMALL_KERNELS
from wheelfactory.kernels.kernel_set import group_kernel_sets, stored_set_name
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.matrix.select import GITHUB_MATRIX_LIMIT
from wheelfactory.release.manifest import published_cells, read_manifest
from workflows.events import dispatch, push_tag
from workflows.expressions import Expressions
from workflows.factory_repository import kernel_place, triton_place
from workflows.results import Run
from workflows.runner import Place, run_workflow

pytestmark = pytest.mark.slow

CELLS = ("fa2.8.3-rocm7.1-torch2.13.0-py3-triton", "fa2.8.3-rocm7.2-torch2.13.0-py3-triton")


CK = f"fa2.8.3-rocm7.2-torch2.13.0-cp3{sys.version_info[1]}-ck"

BUILD_WORKFLOW, CELL_WORKFLOW = ".github/workflows/build.yml", ".github/workflows/_cell.yml"
FALLBACK_ACTION = ".github/actions/fallback/action.yml"

PATHS = frozenset(
    {"cells/cell/build", "cells/cell/verify", "publish/stage", "publish/publish", "pages/site", "pages/deploy"}
)
"""The jobs that need what others made."""


@pytest.fixture
def kernels(tmp_path: Path, cache: Path, evaluator: Expressions, rocm: Mapping[str, str]) -> Place:
    place = kernel_place(tmp_path / "place", cache, evaluator, rocm, CK)
    return replace(place, environ={**place.environ, "MAX_JOBS": "2"})


@pytest.fixture
def triton(tmp_path: Path, stocked: Path, evaluator: Expressions) -> Place:
    return triton_place(tmp_path / "place", stocked, evaluator)


def published(place: Place) -> list[str]:
    """The cells that the manifest of the target names."""
    manifest = Path(place.variables["WHEELFACTORY_TARGET"]) / "manifest.jsonl"
    return sorted(published_cells(read_manifest(manifest))) if manifest.exists() else []


def edit(place: Place, name: str, old: str, new: str) -> None:
    text = (place.tree / name).read_text()
    assert old in text
    (place.tree / name).write_text(text.replace(old, new))


def red(run: Run, *missing: str) -> None:
    """The run failed, and its account names these cells."""
    assert run.result == "failure"
    assert run.job("reconcile").result == "failure"
    for cell in missing:
        assert f"missing  {cell}" in run.job("reconcile").said


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, stocked: Path, evaluator: Expressions) -> tuple[Place, Run]:
    """What a tag made of two cells."""
    place = triton_place(tmp_path_factory.mktemp("released") / "place", stocked, evaluator)
    return place, run_workflow(place, "build.yml", push_tag("v1.0.0"))


def test_a_tag_ends_in_a_release_with_index_and_site(released: tuple[Place, Run]) -> None:
    place, run = released
    assert run.result == "success", run.said()
    assert tuple(published(place)) == CELLS
    assert run.results()["kernels"] == run.results()["continue"] == ["skipped"]
    assert len(list(Path(place.variables["WHEELFACTORY_TARGET"]).glob("wheels/flash_attn-*.whl"))) == 2
    assert len(list(Path(place.variables["WHEELFACTORY_TARGET"]).glob("wheels/flash_attention_amd-*.whl"))) == 1
    assert any((run.artifacts / "github-pages-1").rglob("index.html"))
    assert "selected 2, published 2, missing 0" in run.job("reconcile").said


def test_the_next_tag_has_nothing_to_build_and_is_green(released: tuple[Place, Run]) -> None:
    place, run = released
    again = run_workflow(place, "build.yml", push_tag("v1.0.1"), earlier=run)
    assert again.result == "success", again.said()
    assert "nothing to build" in again.job("select").said
    assert {path for path, results in again.results().items() if results != ["skipped"]} == {"select", "reconcile"}
    assert tuple(published(place)) == CELLS


def test_only_the_jobs_that_publish_may_write(released: tuple[Place, Run]) -> None:
    _, run = released
    leaves = [job for job in run.all() if not job.called and job.result == "success"]
    assert {job.path: job.permissions for job in leaves if "write" in job.permissions.values()} == {
        "collect": {"contents": "write"},
        "publish/stage": {"attestations": "write", "contents": "write", "id-token": "write"},
        "publish/publish": {"contents": "write"},
        "pages/deploy": {"id-token": "write", "pages": "write"},
    }
    for path in ("cells/cell/build", "cells/cell/verify"):
        assert not any(step.saw_token for job in run.of(path) for step in job.steps)


def test_what_fails_leaves_the_others_published_and_the_account_red(triton: Place) -> None:
    """A cell, and the fallback, which no cell needs."""
    edit(triton, FALLBACK_ACTION, "run: ./factory build", "run: exit 4 && ./factory build")
    edit(
        triton,
        CELL_WORKFLOW,
        'run: ./factory build "$CELL" --dest dist',
        f'run: test "$CELL" != {CELLS[0]} && ./factory build "$CELL" --dest dist',
    )
    run = run_workflow(triton, "build.yml", push_tag("v1.0.0"))  # one cell is left: download-artifact has one artifact
    assert Counter(run.results()["cells/cell/build"]) == {"failure": 1, "success": 1}
    assert run.results()["fallback"] == ["failure"]
    assert published(triton) == [CELLS[1]]
    red(run, CELLS[0])
    assert CELLS[1] not in run.job("reconcile").said


def test_a_wheel_that_is_lost_between_jobs_is_noticed_although_each_was_content(triton: Place) -> None:
    text = (triton.tree / CELL_WORKFLOW).read_text()
    before, verify, steps = text.partition("\n  verify:")
    lost = f"      - if: ${{{{ inputs.id != '{CELLS[0]}' }}}}\n        uses: actions/upload-artifact"
    (triton.tree / CELL_WORKFLOW).write_text(
        before + verify + steps.replace("      - uses: actions/upload-artifact", lost)
    )
    run = run_workflow(triton, "build.yml", push_tag("v1.0.0"))
    assert {path for path, results in run.results().items() if "failure" in results} == {"reconcile"}
    red(run, CELLS[0])


def test_more_cells_than_one_matrix_takes_are_all_built_once(triton: Place) -> None:
    """All cells of matrix.yaml, with kernels that are kept already; counted, not built."""
    matrix = load_matrix(triton.tree / "matrix.yaml")
    cells = expand(matrix).cells
    for kernel_set in group_kernel_sets(matrix, cells):
        kept = Path(triton.variables["WHEELFACTORY_TARGET"]) / "kernels" / stored_set_name(matrix, kernel_set)
        kept.mkdir(parents=True)
        (kept / "SHA256SUMS").write_text(f"{'0' * 64}  {kernel_set.id}.tar.zst\n")
        (kept / f"{kernel_set.id}.tar.zst").write_text("")
    place = replace(triton, variables={**triton.variables, "WHEELFACTORY_ONLY": "*"})
    run = run_workflow(place, "build.yml", push_tag("v1.0.0"), unexecuted=PATHS | {"fallback"})
    built = [str(job.matrix["id"]) for job in run.of("cells/cell")]
    assert len(built) > GITHUB_MATRIX_LIMIT
    assert sorted(built) == sorted(cell.id for cell in cells)
    assert {job.matrix["kernel-set"] != "" for job in run.of("cells/cell") if "-ck" in str(job.matrix["id"])} == {True}
    assert max(len(shard.called) for shard in run.of("cells")) <= GITHUB_MATRIX_LIMIT
    assert f"missing {len(cells)}" in run.job("reconcile").said
    assert run.job("reconcile").result == "failure"


def test_a_shard_out_of_time_goes_on_in_a_new_run_which_takes_what_it_left(kernels: Place) -> None:
    (Path(kernels.environ["ROCM_PATH"]) / "hipcc.log").unlink(missing_ok=True)
    edit(kernels, BUILD_WORKFLOW, "--budget 5", "--budget 0.0556")  # as in test_kernels_cells: enough for some kernels
    first = run_workflow(kernels, "build.yml", push_tag("v1.0.0"))
    assert first.of("kernels")[0].result == "success", first.said()
    assert first.job("collect").outputs["kernels-pending"] == "true"
    assert first.job("cells").result == "skipped"
    (call,) = first.calls("gh")
    assert call.job == "continue"
    given = dict(word.split("=", 1) for word in call.argv if "=" in word)
    assert given == {"only": CK, "round": "2", "previous-run": str(first.id)}
    assert published(kernels) == []

    edit(kernels, BUILD_WORKFLOW, "--budget 0.0556", "--budget 5")
    second = run_workflow(kernels, "build.yml", dispatch(), inputs=given, earlier=first)
    assert second.of("kernels")[0].result == "success", second.said()
    assert second.job("collect").outputs["kernels-pending"] == "false"
    assert second.calls("gh") == []
    assert second.job("cells/cell/build").result == "success", second.said()
    log = (Path(kernels.environ["ROCM_PATH"]) / "hipcc.log").read_text()
    compiled = [word for line in log.splitlines() if " -c " in line for word in line.split() if word.endswith(".hip")]
    kernel_names = Counter(Path(word).stem for word in compiled if "fmha_" in word)
    assert kernel_names == Counter(SMALL_KERNELS)  # each once, in one run or the other


def test_the_last_round_does_not_go_on(kernels: Place) -> None:
    edit(kernels, BUILD_WORKFLOW, "--budget 5", "--budget 0.0556")
    run = run_workflow(kernels, "build.yml", dispatch(), inputs={"only": CK, "round": "8"})
    assert run.calls("gh") == []
    assert run.job("continue").result == "skipped"
    assert run.result == "failure"
    red(run, CK)
