"""`wheelfactory ci publish-kernels`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, print_messages
from wheelfactory.commands.targets import add_target, open_attested_archive_host
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.files import read_file
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.kernels.archive_manifest import archive_set_id
from wheelfactory.pipeline.jobs import WorkflowJobs
from wheelfactory.release.bundle import MAX_BUNDLE_BYTES, read_subjects


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser)
    parser.add_argument("--jobs", type=Path, required=True, metavar="FILE", help="jobs file of `ci jobs`")
    parser.add_argument(
        "--attestation",
        type=Path,
        required=True,
        metavar="BUNDLE",
        help="Sigstore bundle of the archives that `ci collect` uploaded (output `bundle-path` of actions/attest)",
    )


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Publish the kernel archives that `ci collect` uploaded, each with the attestation beside it."""
    jobs, source = WorkflowJobs.read(options.jobs), str(options.attestation)
    unreadable = InputError("cannot read the attestation", source, "name the bundle that actions/attest wrote")
    bundle = read_file(options.attestation, unreadable, MAX_BUNDLE_BYTES)
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
