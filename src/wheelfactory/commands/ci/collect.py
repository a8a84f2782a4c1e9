"""`wheelfactory ci collect`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, add_matrix, print_messages, print_results
from wheelfactory.commands.targets import add_target, open_archive_host, open_publisher
from wheelfactory.core.errors import DONE
from wheelfactory.core.files import write_atomic
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.matrix.load import load_matrix
from wheelfactory.pipeline.collect import MAX_ROUNDS, SetState, buildable_cells, collect_sets, fail_after_last_round
from wheelfactory.pipeline.jobs import WorkflowJobs, batch_matrix, output_lines
from wheelfactory.release.manifest import published_cells
from wheelfactory.release.transaction import sha256sums


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser)
    add_matrix(parser)
    parser.add_argument("--jobs", type=Path, required=True, metavar="FILE", help="jobs file written by `ci jobs`")
    parser.add_argument("--kernels", type=Path, required=True, metavar="DIR", help="directory of compiled shards")
    parser.add_argument(
        "--unattested",
        type=Path,
        metavar="FILE",
        help="write the sha256 of each uploaded archive that needs an attestation, for actions/attest",
    )
    parser.add_argument(
        "--round",
        type=int,
        choices=range(1, MAX_ROUNDS + 1),
        default=1,
        metavar="N",
        help=f"how many runs have worked on these kernels, including this one: 1 to {MAX_ROUNDS} (default: 1)",
    )


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Upload complete kernel sets; print the cells that can be built, as lines for ``$GITHUB_OUTPUT``."""
    jobs = WorkflowJobs.read(options.jobs)
    with log_to_stderr():
        published = published_cells(open_publisher(options.target, environ).rows(), load_matrix(options.matrix))
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
    print_results(*output_lines(values))
    return DONE
