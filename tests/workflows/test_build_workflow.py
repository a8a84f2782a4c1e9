"""build.yml end to end on this machine: every selected cell is published, or the run fails and names it."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import container_engine
from rocm_machine import ARCHS, NO_ENGINE, count_targets, read_compiles
from small_release import DEVICE_KERNELS, KERNELS, SMALL_KERNELS, SMALL_SETS
from wheelfactory.core.cell import OFFERED_PRODUCTS, Backend, Cell
from wheelfactory.core.files import MATRIX
from wheelfactory.kernels.compiler.costs import Measurement, seed_cost
from wheelfactory.kernels.compiler.hipcc import read_compiler
from wheelfactory.kernels.kernel_set import group_kernel_sets, sets_of_cell, stored_set_name
from wheelfactory.kernels.setup_env import ledger_path
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.batches import cut_batches, predict_run
from wheelfactory.release.manifest import read_manifest
from workflows.events import SHA, dispatch, push_tag
from workflows.expressions import Expressions
from workflows.factory_repository import kernel_place, triton_place
from workflows.results import Run
from workflows.runner import RunnerSetup, ended_after, run_workflow

pytestmark = pytest.mark.slow

CELLS = ("fa2.8.3-rocm7.1-torch2.13.0-py3-triton", "fa2.8.3-rocm7.2-torch2.13.0-py3-triton")


CK = f"fa2.8.3-rocm7.2-torch2.13.0-cp3{sys.version_info[1]}-ck"

KERNEL_SETS = sets_of_cell(load_matrix(MATRIX), Cell.parse(CK))
"""The kernel sets of the cell, as many as with the digest of the small release, each in one shard."""

SHORT_BUDGET = "--budget 1"
"""Enough hours for all kernels of the small release but the one that `remember_costs` makes slow."""

BUILD_WORKFLOW, BATCH_WORKFLOW = ".github/workflows/build.yml", ".github/workflows/_batch.yml"
PROVE = "src/wheelfactory/kernels/prove.py"
RUN_BATCH = "src/wheelfactory/pipeline/build.py"

SITE = frozenset({"release/check/check"})
"""The job that installs what was published, with torch for ROCm, which is not here: see test_check_workflow.py."""

PAGES = SITE | {"release/pages/site", "release/pages/deploy"}
"""The jobs after a release."""

PUBLISH_WORKFLOW = ".github/workflows/_publish.yml"

PLANNED = ("select", "collect", "release/approve", "release/plain")
"""The jobs before the first wheel is built."""

BUILD, VERIFY, STAGE = "release/cells/build", "release/cells/verify", "release/cells/upload/stage"

PATHS = PAGES | {BUILD, VERIFY, STAGE, "release/plain", "release/publish"}
"""Jobs that need the artifacts of others, or the network."""


@pytest.fixture
def kernels(tmp_path: Path, cache: Path, evaluator: Expressions, small_rocm: Mapping[str, str]) -> RunnerSetup:
    place = kernel_place(tmp_path / "place", cache, evaluator, small_rocm, CK)
    # the sandbox has no GitHub to ask; the command itself has tests in test_release_github_check_run.py
    for run in ("GITHUB_RUN_ID", "PREVIOUS_RUN"):
        check = f'./factory ci check-run "github:$GITHUB_REPOSITORY" "${run}" --artifacts artifacts --dest kernels'
        taken = f"test -n ${run}; mkdir kernels; find artifacts/kernels-* -type f -exec mv {{}} kernels ';' || true"
        edit(place, BUILD_WORKFLOW, f"run: {check}", f'run: "{taken}"')
    return replace(place, environ={**place.environ, "MAX_JOBS": "2"})


@pytest.fixture
def triton(tmp_path: Path, stocked: Path, evaluator: Expressions) -> RunnerSetup:
    return triton_place(tmp_path / "place", stocked, evaluator)


def published(place: RunnerSetup) -> list[str]:
    """Return the published cells of the target."""
    manifest = Path(place.environ["WHEELFACTORY_TARGET"]) / "manifest.jsonl"
    return sorted(str(row.cell) for row in read_manifest(manifest) if row.cell) if manifest.exists() else []


def published_products(place: RunnerSetup) -> list[str]:
    """Return the published distributions of the target that are not flash-attn."""
    manifest = Path(place.environ["WHEELFACTORY_TARGET"]) / "manifest.jsonl"
    return sorted(row.product for row in read_manifest(manifest) if row.product in OFFERED_PRODUCTS)


def edit(place: RunnerSetup, name: str, old: str, new: str) -> None:
    text = (place.tree / name).read_text()
    assert old in text
    (place.tree / name).write_text(text.replace(old, new))


def assert_missing(run: Run, *missing: str) -> None:
    """Assert that the run failed and reports these cells as missing."""
    assert run.result == "failure"
    assert run.job("reconcile").result == "failure"
    for cell in missing:
        assert f"missing  {cell}" in run.job("reconcile").output


@pytest.fixture(scope="module")
def engine_url() -> Iterator[str]:
    """A container engine for the code of wheels, if this machine can run one."""
    if container_engine.find_missing_requirement():
        yield NO_ENGINE
        return
    with container_engine.engine(container_engine.FOLDER) as started:
        yield started.url


@pytest.fixture(scope="module")
def released(
    tmp_path_factory: pytest.TempPathFactory, stocked: Path, evaluator: Expressions, engine_url: str
) -> tuple[RunnerSetup, Run]:
    """The run of a tag that publishes two cells; the other tests run the jobs in the order of the files.

    Computing takes minutes, so the job that proves finds its proofs; the job that verifies has only their artifact, and
    the proofs of the products, which no job hands on. The documentation is one page.
    """
    folder = tmp_path_factory.mktemp("released") / "place"
    place = replace(triton_place(folder, stocked, evaluator, engine_url), last_first=True)
    assert place.home
    for proof in (place.home / ".cache/wheelfactory/proofs").iterdir():
        if "flash_attn_triton_amd" in proof.read_text():
            proof.unlink()
    shutil.rmtree(place.tree / "docs")
    (place.tree / "docs").mkdir()
    for name, text in (("conf.py", ""), ("index.rst", "Guide\n=====\n")):
        (place.tree / "docs" / name).write_text(text)
    prove = "run: ./factory ci batch prove"
    edit(place, BATCH_WORKFLOW, prove, f"run: cp -r {stocked}/proofs ~/.cache/wheelfactory; {prove[5:]}")
    return place, run_workflow(place, "build.yml", push_tag("v1.0.0"), unexecuted=SITE)


def test_a_tag_publishes_a_release_with_index_and_site(released: tuple[RunnerSetup, Run]) -> None:
    place, run = released
    assert run.result == "success", run.output()
    assert tuple(published(place)) == CELLS
    assert run.results()["kernels"] == run.results()["continue"] == ["skipped"]
    assert len(list(Path(place.environ["WHEELFACTORY_TARGET"]).glob("wheels/flash_attn-*+rocm*.whl"))) == 2
    assert len(list(Path(place.environ["WHEELFACTORY_TARGET"]).glob("wheels/flash_attention_amd-*.whl"))) == 1
    wheels = list(Path(place.environ["WHEELFACTORY_TARGET"]).glob("wheels/flash_att*.whl"))
    assert all(wheel.with_name(f"{wheel.name}.sigstore.json").is_file() for wheel in wheels), "attested by the fake"
    assert any((run.artifacts / "github-pages-1").rglob("index.html"))
    assert (run.job("release/check/check").result, run.job("release/check/report").result) == ("success", "skipped")
    assert "selected 2, published 2, missing 0" in run.job("reconcile").output


def test_the_proofs_of_the_numeric_gates_are_handed_on(released: tuple[RunnerSetup, Run]) -> None:
    _, run = released
    assert not [job.path for job in run.jobs_at(VERIFY) if "computing with" in job.output]


def test_the_next_tag_has_nothing_to_build_and_succeeds(released: tuple[RunnerSetup, Run]) -> None:
    place, run = released
    again = run_workflow(place, "build.yml", push_tag("v1.0.1"), previous=run)
    assert again.result == "success", again.output()
    assert "nothing to build" in again.job("select").output
    assert {path for path, results in again.results().items() if results != ["skipped"]} == {"select", "reconcile"}
    assert tuple(published(place)) == CELLS


def test_only_publishing_jobs_have_write_permissions(released: tuple[RunnerSetup, Run]) -> None:
    _, run = released
    leaves = [job for job in run.all() if not job.called and job.result == "success"]
    assert {job.path: job.permissions for job in leaves if "write" in job.permissions.values()} == {
        "collect": {"actions": "read", "attestations": "write", "contents": "write", "id-token": "write"},
        STAGE: {"attestations": "write", "contents": "write", "id-token": "write"},
        "release/publish": {"contents": "write"},
        "release/pages/deploy": {"id-token": "write", "pages": "write"},
    }
    for path in (BUILD, "release/cells/prove", VERIFY):
        assert not any(step.saw_token for job in run.jobs_at(path) for step in job.steps)


def test_every_wheel_is_an_artifact_once(released: tuple[RunnerSetup, Run]) -> None:
    _, run = released
    batches = (*OFFERED_PRODUCTS, "triton-2.8.3-1")
    kinds = [f"{kind}-{batch}" for kind in ("rows", "wheels") for batch in batches]
    assert run.artifact_names() == sorted([*kinds, "proofs-triton-2.8.3-1", "jobs", "plain", "github-pages-1"])
    wheels = [path.name for path in run.artifacts.rglob("*.whl") if "plain" not in path.parts]
    assert len(wheels) == len(set(wheels)) == 4


def test_a_rehearsal_verifies_everything_and_prints_what_it_would_upload(
    triton: RunnerSetup, released: tuple[RunnerSetup, Run]
) -> None:
    inputs = {"tag": "v1.0.0", "commit": SHA, "dry-run": "true"}
    built = ended_after(released[1], triton, (*PLANNED, BUILD, "release/cells/prove"), ("jobs", "plain", "*-*"))
    run = run_workflow(triton, "build.yml", dispatch(), inputs=inputs, attempt_of=built)
    assert run.result == "success", run.output()
    wheels = {path.name for path in run.artifacts.glob("wheels-*/*.whl")}
    shown = "".join(job.output for job in run.jobs_at(VERIFY))
    assert len(wheels) == 4
    assert all(f"/{name}  " in shown for name in wheels), shown
    assert list(Path(triton.environ["WHEELFACTORY_TARGET"]).rglob("*")) == [], "nothing was written"
    assert {job.path for job in run.all() if job.result == "success" and "write" in job.permissions.values()} == {
        "collect",  # publishes kernel sets, which the cells link
        "release",
        "release/cells",
    }

    other = run_workflow(triton, "build.yml", dispatch(), inputs={**inputs, "commit": SHA[:7]}, previous=run)
    assert f"error: not the commit of this run: {SHA[:7]}, the run is one of {SHA}" in other.job("select").output
    assert other.result == "failure"


def test_a_wheel_that_is_not_built_or_not_attested_is_not_published_and_holds_back_no_other(
    triton: RunnerSetup, released: tuple[RunnerSetup, Run]
) -> None:
    """A re-run builds and uploads only what failed."""
    unattested, unbuilt = OFFERED_PRODUCTS
    failing = f"""        if name in {(CELLS[0], unbuilt)}:
            raise InputError("the disk is full", name, "try again")
"""
    before = "        if name in PRODUCTS:\n            build_wheel("
    edit(triton, RUN_BATCH, before, failing + before)
    sums, lost = (
        "checksums.txt # not",
        f"${{{{ inputs.batch == '{unattested}' && 'lost.txt' || 'checksums.txt' }}}} # not",
    )
    edit(triton, PUBLISH_WORKFLOW, sums, lost)
    planned = ended_after(released[1], triton, PLANNED, ("jobs", "plain"))
    run = run_workflow(triton, "build.yml", push_tag("v1.0.0"), attempt_of=planned, unexecuted=PAGES)
    assert Counter(run.results()[BUILD]) == {"failure": 2, "success": 1}
    assert f"error: {CELLS[0]}: the disk is full" in run.jobs_at(BUILD)[0].output
    assert Counter(run.results()[VERIFY]) == {"success": 2, "skipped": 1}
    assert Counter(run.results()[STAGE]) == {"failure": 1, "success": 1}
    assert run.results()["release/pages/deploy"] == ["success"]
    assert published(triton) == [CELLS[1]]
    assert published_products(triton) == []
    assert_missing(run, CELLS[0])
    assert CELLS[1] not in run.job("reconcile").output

    edit(triton, RUN_BATCH, failing, "")
    edit(triton, PUBLISH_WORKFLOW, lost, sums)
    again = run_workflow(triton, "build.yml", push_tag("v1.0.0"), attempt_of=run, unexecuted=PAGES)
    assert again.result == "success", again.output()
    assert tuple(published(triton)) == CELLS
    assert published_products(triton) == sorted(OFFERED_PRODUCTS)
    assert f"[1/1] {CELLS[0]}" in again.jobs_at(BUILD)[0].output, "the other wheel was kept"


def test_the_whole_matrix_is_built_in_jobs_by_image(triton: RunnerSetup) -> None:
    """All cells of matrix.yaml with uploaded kernels; their jobs are counted, not run."""
    matrix = load_matrix(triton.tree / "matrix.yaml")
    cells = expand(matrix).cells
    for kernel_set in group_kernel_sets(matrix, cells):
        kept = Path(triton.environ["WHEELFACTORY_TARGET"]) / "kernels" / stored_set_name(matrix, kernel_set)
        kept.mkdir(parents=True)
        (kept / "SHA256SUMS").write_text(f"{'0' * 64}  {kernel_set.id}.tar.zst\n")
        (kept / f"{kernel_set.id}.tar.zst").write_text("")
    place = replace(triton, variables={**triton.variables, "WHEELFACTORY_ONLY": "*", "WHEELFACTORY_RUNNER": "large"})
    run = run_workflow(place, "build.yml", push_tag("v1.0.0"), unexecuted=PATHS)
    batches = [job.matrix for job in run.jobs_at("release/cells")]
    built = [name for batch in batches for name in str(batch["cells"]).split()]
    assert sorted(built) == sorted([*(cell.id for cell in cells), *OFFERED_PRODUCTS, "amd-aiter"])
    compiled = [batch for batch in batches if str(batch["batch"]).startswith("ck-")]
    for batch in compiled:
        linked = {name for cell in str(batch["cells"]).split() for name in sets_of_cell(matrix, Cell.parse(cell))}
        assert str(batch["kernel-sets"]).split() == sorted(linked)
    forecast = predict_run(cut_batches(matrix, cells), [])
    assert 2 * len(compiled) == forecast.cell_pulls
    by_batch = [job for job in run.all() if job.path in (BUILD, VERIFY, "release/cells/upload")]
    gates = [batch for batch in batches if str(batch["batch"]).startswith("triton-")]
    fixed = [job for job in run.all() if job.path in ("select", "collect", "reconcile", "release/check")]
    called = [
        job
        for job in run.all()
        if job.path
        in ("release/approve", "release/plain", "release/publish", "release/pages/site", "release/pages/deploy")
    ]
    assert len(by_batch) + len(gates) + len(fixed) + len(called) == forecast.jobs
    assert {job.runner for job in run.jobs_at(BUILD)} == {"large", "ubuntu-24.04"}
    assert f"missing {len(cells)}" in run.job("reconcile").output
    assert run.job("reconcile").result == "failure"


def test_a_fork_without_a_runner_builds_what_hosted_runners_can_and_names_the_rest(triton: RunnerSetup) -> None:
    """The whole matrix; the jobs of cells are counted, not run."""
    cells = {cell.id: cell.backend for cell in expand(load_matrix(triton.tree / "matrix.yaml")).cells}
    place = replace(triton, variables={**triton.variables, "WHEELFACTORY_ONLY": "*"})
    run = run_workflow(place, "build.yml", push_tag("v1.0.0"), unexecuted=PATHS)
    planned = {name for job in run.jobs_at("release/cells") for name in str(job.matrix["cells"]).split()}
    wanted = {name for name, backend in cells.items() if backend is Backend.TRITON}
    assert planned == wanted | {*OFFERED_PRODUCTS, "amd-aiter"}
    assert {job.runner for job in run.jobs_at(BUILD)} == {"ubuntu-24.04"}
    assert run.job("kernels").result == "skipped"
    summary = run.job("reconcile").output
    assert f"missing {len(wanted)}" in summary, "nothing was published, as no job ran"
    assert (
        f"not built here: needs a runner: {len(cells) - len(wanted)} CK cells; set the repository variable" in summary
    )


def remember_costs(place: RunnerSetup) -> None:
    """Make the runners remember that one kernel takes 10,000 s for an arch, and the others what they usually take."""
    compiler = read_compiler(f"{place.environ['ROCM_PATH']}/bin/hipcc", place.environ).content
    slow = next(name for name in SMALL_KERNELS if "_d256_" in name)
    costs = {name: seed_cost(name, ARCHS[:1]).cpu_s for name in SMALL_KERNELS} | {slow: 10_000.0}
    lines = [Measurement(name, ARCHS[:1], compiler, cost, 500, 1000).to_line() for name, cost in costs.items()]
    assert place.home
    ledger_path(place.home / ".cache/wheelfactory").write_text("".join(lines))


def execute_nothing(place: RunnerSetup) -> None:
    """Leave out what a proof executes: the objects of the fake compiler have no kernels."""
    recording = "_record(executor, proving, calls, scratch, report_progress, context)"
    edit(place, PROVE, recording, "{}")
    edit(place, PROVE, "read_descriptors(device)", "{}")
    edit(place, PROVE, "for call in suggest_calls(source)", "for call in ()")


def test_a_shard_out_of_time_continues_in_a_new_run(kernels: RunnerSetup) -> None:
    (Path(kernels.environ["ROCM_PATH"]) / "hipcc.log").unlink(missing_ok=True)
    remember_costs(kernels)
    execute_nothing(kernels)
    edit(kernels, BUILD_WORKFLOW, "--budget 5", SHORT_BUDGET)
    first = run_workflow(kernels, "build.yml", push_tag("v1.0.0"), unexecuted=PAGES)
    assert first.results()["kernels"] == ["success"] * len(KERNEL_SETS), first.output()
    assert first.job("collect").outputs["kernels-pending"] == "true"
    assert first.job("release").result == "skipped"
    (call,) = first.calls("gh")
    assert call.job == "continue"
    given = dict(word.split("=", 1) for word in call.argv if "=" in word)
    asked = {"tag": "", "commit": "", "dry-run": "false"}
    assert given == {**asked, "only": CK, "round": "2", "previous-run": str(first.id)}
    assert published(kernels) == []

    edit(kernels, BUILD_WORKFLOW, SHORT_BUDGET, "--budget 5")
    unexecuted = PATHS - {BUILD}
    second = run_workflow(kernels, "build.yml", dispatch(), inputs=given, previous=first, unexecuted=unexecuted)
    unfinished = [name for name in SMALL_SETS if not name.endswith("-cxx11")]
    assert [job.matrix["set"] for job in second.jobs_at("kernels")] == unfinished, "the host's set was complete"
    assert second.results()["kernels"] == ["success"] * len(unfinished), second.output()
    proofs = [name for name in second.artifact_names() if name.endswith(".proof")]
    assert (first.results()["prove"], proofs) == (
        ["success"] * len(unfinished),
        [f"kernels-{name}.proof" for name in unfinished],
    ), "unfinished kernels are no failure, and have no proof"
    assert not [name for name in first.artifact_names() if name.endswith(".proof")]
    assert second.job("collect").outputs["kernels-pending"] == "false"
    assert second.calls("gh") == []
    assert second.jobs_at(BUILD)[0].result == "success", second.output()
    log = (Path(kernels.environ["ROCM_PATH"]) / "hipcc.log").read_text()
    compiled = count_targets(read_compiles(log))
    # each kernel is compiled once for each arch and for the host, in one of the runs
    assert [compiled[arch] for arch in ARCHS] == [DEVICE_KERNELS] * len(ARCHS)
    assert compiled["host"] == KERNELS


def test_a_shard_that_fails_drops_the_cells_of_its_set_and_fails_the_run(kernels: RunnerSetup) -> None:
    edit(kernels, BUILD_WORKFLOW, "run: ./factory kernels", "run: exit 4 # ./factory kernels")
    run = run_workflow(kernels, "build.yml", push_tag("v1.0.0"), unexecuted=PAGES)
    assert run.results()["kernels"] == ["failure"] * len(KERNEL_SETS)
    assert run.job("collect").result == "success"
    assert "failed\n" in run.job("collect").output
    assert {run.job(name).result for name in ("continue", "release")} == {"skipped"}
    assert_missing(run, CK)
