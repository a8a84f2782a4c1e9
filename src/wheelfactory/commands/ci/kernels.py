"""The workflow commands for kernels: `ci kernels`, `ci collect`, `ci publish-kernels` and `ci check-run`.

`ci check-run` decides whether another run may continue with the kernels of one.
"""

from __future__ import annotations

import argparse
import re

from wheelfactory.commands.options import (
    add_dest,
    add_option,
    add_shared,
    as_directory,
    print_messages,
    print_outputs,
    print_results,
)
from wheelfactory.commands.targets import (
    add_target,
    open_archive_host,
    open_attested_archive_host,
    open_client,
    open_publisher,
)
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.files import write_atomic
from wheelfactory.core.models import FrozenModel
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.core.strict import SHA256
from wheelfactory.kernels.archive_format import archive_set_id
from wheelfactory.kernels.kernel_set import group_kernel_sets, require_set, stored_set_name
from wheelfactory.kernels.storage import download_set
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.jobs import WorkflowJobs, batch_matrix
from wheelfactory.pipeline.outcome import (
    MAX_ROUNDS,
    SetState,
    buildable_cells,
    collect_sets,
    fail_after_last_round,
    take_sealed,
)
from wheelfactory.release.bundle import BUILD_WORKFLOW, read_bundle, read_subjects
from wheelfactory.release.github.client import Client
from wheelfactory.release.manifest import available_cells
from wheelfactory.release.transaction import held_rows, sha256sums


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser)
    parser.add_argument("sets", help="kernel set ids, separated by spaces")
    add_dest(parser, "kernels", "download into this directory")
    add_shared(parser, "--matrix FILE")


def execute(options: argparse.Namespace) -> int:
    """Download the archives of several kernel sets, and print their paths."""
    matrix, dest = load_matrix(options.matrix), as_directory(options.dest)
    known = group_kernel_sets(matrix, expand(matrix).cells)
    with log_to_stderr():
        host = open_archive_host(options.target, options.environ)
        for name in options.sets.split():
            kernel_set = require_set(known, name)
            print_results(str(download_set(host, stored_set_name(matrix, kernel_set), kernel_set.id, dest)))
    return DONE


def add_collect(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ci collect`."""
    add_target(parser)
    add_shared(parser, "--matrix FILE")
    add_option(parser, "--jobs FILE", "jobs file written by `ci jobs`", required=True)
    add_option(parser, "--kernels DIR", "directory of compiled shards", required=True)
    add_option(parser, "--unattested FILE", "write the sha256 of each uploaded archive, for actions/attest")
    rounds = range(1, MAX_ROUNDS + 1)
    add_option(parser, "--round N", "number of runs for these kernels so far (default: 1)", choices=rounds, default=1)


def execute_collect(options: argparse.Namespace) -> int:
    """Upload complete kernel sets; print the cells that can be built, as lines for ``$GITHUB_OUTPUT``."""
    jobs = WorkflowJobs.read(options.jobs)
    with log_to_stderr():
        publisher = open_publisher(options.target, options.environ)
        published = available_cells(held_rows(publisher), load_matrix(options.matrix))
        host = open_archive_host(options.target, options.environ)
        collected = fail_after_last_round(collect_sets(jobs, options.kernels, host), options.round)
    for item in collected:
        print_messages(f"{item.set_jobs.id}: {item.state.value}")
        print_messages(*(f"  uploaded, to be attested: {name}" for name in item.unattested))
        if item.error:
            print_messages(f"  {item.error}", f"  hint: {item.error.hint}")
    unattested = {name: sha256 for item in collected for name, sha256 in item.unattested.items()}
    if options.unattested:
        write_atomic(options.unattested, sha256sums(unattested))
    cells = buildable_cells(jobs, collected, published)
    values = {
        "kernels-pending": any(item.state is SetState.PENDING for item in collected),
        "next-round": options.round + 1,
        "unattested": bool(unattested),
        "count": len(cells),
        "batches": batch_matrix(cells),
    }
    print_outputs(values)
    return DONE


def add_publish_kernels(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ci publish-kernels`."""
    add_target(parser)
    add_option(parser, "--jobs FILE", "jobs file of `ci jobs`", required=True)
    what = "Sigstore bundle of the archives that `ci collect` uploaded (output `bundle-path` of actions/attest)"
    add_option(parser, "--attestation BUNDLE", what, required=True)


def execute_publish_kernels(options: argparse.Namespace) -> int:
    """Publish the kernel archives that `ci collect` uploaded, each with the attestation beside it."""
    jobs, source = WorkflowJobs.read(options.jobs), str(options.attestation)
    bundle = read_bundle(options.attestation)
    archive_names = {set_jobs.id: set_jobs.archive_name for set_jobs in jobs.kernel_sets}
    with log_to_stderr():
        host = open_attested_archive_host(options.target, options.environ)
        for subject in read_subjects(bundle, source):
            set_id = archive_set_id(subject.name)
            if set_id not in archive_names:
                hint = "name the jobs file and the attestation of the same run"
                raise InputError("not an archive of this run's kernel sets", subject.name, hint)
            host.publish(archive_names[set_id], subject.name, subject.digest.sha256, bundle)
            print_messages(f"{set_id}: published with its attestation")
    return DONE


def add_check_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ci check-run`."""
    add_target(parser)
    parser.add_argument("run", type=int, metavar="RUN", help="id of the run")
    add_option(parser, "--artifacts DIR", "downloaded artifacts, each in a folder of its name", required=True)
    add_dest(parser, "kernels", "move the kernels and proofs into this directory")


def execute_check_run(options: argparse.Namespace) -> int:
    """Take the kernels of a run, if it is one of build.yml in this repository and its own jobs sealed them."""
    client = open_client(options.target, options.environ)
    with log_to_stderr():
        run = read_run(client, options.run)
        require_own_run(run, client.repository)
        seals = read_seals(client, run.id)
    take_sealed(as_directory(options.artifacts), seals, as_directory(options.dest))
    print_messages(f"run {run.id}: {run.path} on {run.event} in {client.repository}")
    return DONE


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
