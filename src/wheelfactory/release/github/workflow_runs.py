"""Workflow runs on GitHub, and whether another run may continue with the kernels of one."""

from __future__ import annotations

import re

from wheelfactory.core.errors import InputError
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.strict import SHA256
from wheelfactory.release.bundle import BUILD_WORKFLOW
from wheelfactory.release.github.client import Client


class RunRepository(FrozenModel, extra="ignore"):
    """A repository that a run names."""

    full_name: str


class WorkflowRun(FrozenModel, extra="ignore"):
    """A workflow run as the API returns it."""

    id: int
    event: str
    path: str
    """The workflow file; GitHub's description has ``OWNER/REPO/`` before it and ``@REF`` behind it in its examples."""
    head_repository: RunRepository | None
    """The repository of the run's commit: for a pull request of a fork, the fork. None once that is deleted."""


class RunStep(FrozenModel, extra="ignore"):
    """A step of a job as the API returns it."""

    name: str
    """With the values of its expressions."""


class RunJob(FrozenModel, extra="ignore"):
    """A job of a run as the API returns it."""

    name: str
    run_attempt: int = 1
    steps: tuple[RunStep, ...] = ()


def read_run(client: Client, run_id: int) -> WorkflowRun:
    """Read a run of the client's repository. Raises `PublishError` if there is none."""
    return client.get(f"{client.url}/actions/runs/{run_id}", WorkflowRun)


def read_seals(client: Client, run_id: int) -> dict[str, str]:
    """Return the sha256 that each job of a run sealed an artifact with, by the job's name; the last attempt counts.

    It is in the name of a step, which GitHub's runner takes from the workflow file and the outputs of the job's own
    steps. The jobs of a matrix share their outputs, so the last of them would set the digest of all.
    """
    jobs = [*client.list_entries(f"{client.url}/actions/runs/{run_id}/jobs?filter=all", RunJob, "jobs")]
    jobs.sort(key=lambda job: job.run_attempt)
    return {job.name: seal[1] for job in jobs for step in job.steps if (seal := _SEAL.fullmatch(step.name))}


_SEAL = re.compile(f"Sealed ({SHA256})")


_EVENTS = ("push", "workflow_dispatch")
_HINT = "dispatch build.yml without `previous-run`: it compiles the kernels itself"


def require_own_run(run: WorkflowRun, repository: str) -> None:
    """Raise `InputError` unless a run is one of `BUILD_WORKFLOW`, on a commit of `repository` (``OWNER/REPO``).

    A pull request can change the workflow file and everything that the run compiles, so its runs do not count, and
    neither do those of a fork. The repository is compared in any case, as GitHub does.
    """
    head = run.head_repository.full_name if run.head_repository else "a deleted repository"
    path = run.path.partition("@")[0].removeprefix(f"{head}/")
    for what, found, expected, is_own in (
        ("repository", head, repository, head.lower() == repository.lower()),
        ("workflow file", path, BUILD_WORKFLOW, path == BUILD_WORKFLOW),
        ("event", run.event, " or ".join(_EVENTS), run.event in _EVENTS),
    ):
        if not is_own:
            which = f"run {run.id}: its {what} is {found}, not {expected}"
            raise InputError("cannot use the kernels of this run", which, _HINT)
