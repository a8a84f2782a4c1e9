"""Workflow runs as GitHub describes them: which kernels `ci check-run` takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from command_line import Cli, CommandResult
from fake_github import FakeGitHub
from fake_github.contract import example_job, example_run
from fake_github.repository import OWNER_REPO
from wheelfactory.commands.ci.kernels import RunRepository, WorkflowRun, require_own_run
from wheelfactory.core.errors import DONE, FAILED, VERIFICATION_FAILED, InputError
from wheelfactory.core.files import folder_sha256
from wheelfactory.release.bundle import BUILD_WORKFLOW

SHARD, PROOF = "kernels-SET.shard-1-of-2", "kernels-SET.proof"
SHARD_FILE, PROOF_FILE = "SET-0123456789abcdef.shard-1-of-2.tar.zst", "SET-0123456789abcdef.proof.json"


@pytest.fixture
def check_run(
    github: FakeGitHub, _environ: None, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., CommandResult]:
    """Runs `ci check-run` for a run that GitHub describes with these changes, and the artifacts of `SHARD` and `PROOF`.

    It is called in a folder that has these files.
    """
    monkeypatch.chdir(tmp_path)
    for artifact, name in ((SHARD, SHARD_FILE), (PROOF, PROOF_FILE)):
        (tmp_path / "artifacts" / artifact).mkdir(parents=True)
        (tmp_path / "artifacts" / artifact / name).write_text(name)
        sealed = f"Sealed {folder_sha256(tmp_path / 'artifacts' / artifact)}"
        github.repository.jobs.setdefault(1001, []).append(example_job(artifact, "Set up job", sealed, run_attempt=1))

    def check(repository: str = OWNER_REPO, **changes: object) -> CommandResult:
        github.repository.runs[1001] = example_run(repository, id=1001, **changes)
        return cli("ci", "check-run", f"github:{OWNER_REPO}", "1001", "--artifacts", "artifacts")

    return check


def test_what_the_jobs_of_an_own_run_sealed_is_taken(check_run: Callable[..., CommandResult], cli: Cli) -> None:
    Path("artifacts/jobs").mkdir()
    Path("artifacts/evil-SET-0123456789abcdef.tar.zst").write_text("in no artifact, as if it were the only one")
    shown = check_run(event="workflow_dispatch")
    assert (shown.code, shown.out) == (DONE, "")
    assert shown.err == f"run 1001: .github/workflows/build.yml@main on workflow_dispatch in {OWNER_REPO}\n"
    assert sorted(path.name for path in Path("kernels").glob("*")) == [PROOF_FILE, SHARD_FILE]
    assert cli("ci", "check-run", f"github:{OWNER_REPO}", "1002", "--artifacts", "artifacts").code == FAILED, "no run"


def forge(artifact: str, name: str = "evil-0123456789abcdef.tar.zst") -> None:
    Path("artifacts", artifact).mkdir(exist_ok=True)
    Path("artifacts", artifact, name).write_text("forged")


@pytest.mark.parametrize(
    ("artifact", "name"),
    [(SHARD, SHARD_FILE), (SHARD, "more.tar.zst"), (PROOF, PROOF_FILE), ("kernels-evil", "evil.tar.zst")],
    ids=["swapped shard", "another file", "forged proof", "foreign name"],
)
def test_an_artifact_that_its_job_did_not_seal_is_refused_with_the_name_of_the_job(
    check_run: Callable[..., CommandResult], artifact: str, name: str
) -> None:
    forge(artifact, name)
    shown = check_run()
    assert shown.code == VERIFICATION_FAILED
    assert f"error: not the artifact that its job made: artifact {artifact} has " in shown.err
    assert not [path for path in Path("kernels").glob("*") if path.read_text() == "forged"]


def test_the_seal_of_the_last_attempt_counts_whatever_the_order(
    check_run: Callable[..., CommandResult], github: FakeGitHub
) -> None:
    github.repository.jobs.setdefault(1001, []).insert(0, example_job(SHARD, f"Sealed {'0' * 64}", run_attempt=2))
    shown = check_run()
    assert f"artifact {SHARD} has " in shown.err
    assert shown.err.splitlines()[0].endswith(f"its job made {'0' * 64}")


def test_a_job_cannot_seal_what_belongs_to_another(check_run: Callable[..., CommandResult], github: FakeGitHub) -> None:
    """Such as the proof of the kernels that it compiled."""
    forge(SHARD, PROOF_FILE)
    sealed = f"Sealed {folder_sha256(Path('artifacts', SHARD))}"
    github.repository.jobs[1001].append(example_job(SHARD, sealed, run_attempt=2))
    shown = check_run()
    assert (shown.code, Path("kernels", PROOF_FILE).read_text()) == (VERIFICATION_FAILED, PROOF_FILE)
    assert shown.err.startswith(f"error: a file of another job: {PROOF_FILE} in artifact {SHARD}")


REPOSITORY = "someone/wheels"
OWN = WorkflowRun(id=1001, event="push", path=BUILD_WORKFLOW, head_repository=RunRepository(full_name=REPOSITORY))


def test_a_run_of_this_workflow_is_accepted() -> None:
    paths = (BUILD_WORKFLOW, f"{BUILD_WORKFLOW}@main", f"{REPOSITORY}/{BUILD_WORKFLOW}@refs/tags/v1")
    for event, path, repository in product(("push", "workflow_dispatch"), paths, (REPOSITORY, "SomeOne/Wheels")):
        require_own_run(OWN.model_copy(update={"event": event, "path": path}), repository)


def test_any_other_run_is_refused_with_what_differs() -> None:
    changes: list[tuple[str, object, str]] = [
        ("head_repository", RunRepository(full_name="else/wheels"), "repository is else/wheels, not someone/wheels"),
        ("head_repository", None, "repository is a deleted repository"),  # a deleted fork
        ("event", "pull_request", "event is pull_request, not push or workflow_dispatch"),
        ("path", ".github/workflows/ci.yml", f"workflow file is .github/workflows/ci.yml, not {BUILD_WORKFLOW}"),
        ("path", ".github/workflows/Build.yml", "workflow file is .github/workflows/Build.yml"),  # another file
        ("path", f".github/workflows/other.yml@{BUILD_WORKFLOW}", "workflow file is .github/workflows/other.yml"),
        ("path", f"else/wheels/{BUILD_WORKFLOW}@main", f"workflow file is else/wheels/{BUILD_WORKFLOW}"),
    ]
    for name, value, found in changes:
        with pytest.raises(InputError) as refused:
            require_own_run(OWN.model_copy(update={name: value}), REPOSITORY)
        assert str(refused.value).startswith(f"cannot use the kernels of this run: run 1001: its {found}")
        assert "without `previous-run`" in refused.value.hint
