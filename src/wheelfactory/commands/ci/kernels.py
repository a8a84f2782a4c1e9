"""The workflow commands for kernels: `ci kernels`, `ci collect`, `ci publish-kernels` and `ci check-run`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import (
    Environ,
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
from wheelfactory.core.progress import log_to_stderr
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
from wheelfactory.release.bundle import read_bundle, read_subjects
from wheelfactory.release.github.workflow_runs import read_run, read_seals, require_own_run
from wheelfactory.release.manifest import available_cells
from wheelfactory.release.transaction import held_rows, sha256sums


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser)
    parser.add_argument("sets", help="kernel set ids, separated by spaces")
    add_dest(parser, "kernels", "download into this directory")
    add_shared(parser, "--matrix FILE")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Download the archives of several kernel sets, and print their paths."""
    matrix, dest = load_matrix(options.matrix), as_directory(options.dest)
    known = group_kernel_sets(matrix, expand(matrix).cells)
    with log_to_stderr():
        host = open_archive_host(options.target, environ)
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


def execute_collect(options: argparse.Namespace, environ: Environ) -> int:
    """Upload complete kernel sets; print the cells that can be built, as lines for ``$GITHUB_OUTPUT``."""
    jobs = WorkflowJobs.read(options.jobs)
    with log_to_stderr():
        published = available_cells(held_rows(open_publisher(options.target, environ)), load_matrix(options.matrix))
        host = open_archive_host(options.target, environ)
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


def execute_publish_kernels(options: argparse.Namespace, environ: Environ) -> int:
    """Publish the kernel archives that `ci collect` uploaded, each with the attestation beside it."""
    jobs, source = WorkflowJobs.read(options.jobs), str(options.attestation)
    bundle = read_bundle(options.attestation)
    archive_names = {set_jobs.id: set_jobs.archive_name for set_jobs in jobs.kernel_sets}
    with log_to_stderr():
        host = open_attested_archive_host(options.target, environ)
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


def execute_check_run(options: argparse.Namespace, environ: Environ) -> int:
    """Take the kernels of a run, if it is one of build.yml in this repository and its own jobs sealed them."""
    client = open_client(options.target, environ)
    with log_to_stderr():
        run = read_run(client, options.run)
        require_own_run(run, client.repository)
        seals = read_seals(client, run.id)
    take_sealed(as_directory(options.artifacts), seals, as_directory(options.dest))
    print_messages(f"run {run.id}: {run.path} on {run.event} in {client.repository}")
    return DONE
