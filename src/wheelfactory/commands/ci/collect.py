"""`wheelfactory ci collect`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, print_messages, print_results
from wheelfactory.commands.targets import add_target, open_archive_host, open_publisher
from wheelfactory.core.errors import DONE
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.matrix.select import sharded_strategy_json
from wheelfactory.pipeline.collect import MAX_ROUNDS, SetState, buildable_cells, collect_sets, fail_after_last_round
from wheelfactory.pipeline.jobs import WorkflowJobs, cell_entries, group_matrix, output_lines
from wheelfactory.release.manifest import published_cells


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_target(parser)
    parser.add_argument("--plan", type=Path, required=True, metavar="FILE", help="what `ci jobs` wrote")
    parser.add_argument("--kernels", type=Path, required=True, metavar="DIR", help="where the archives of shards are")
    parser.add_argument(
        "--round",
        type=int,
        choices=range(1, MAX_ROUNDS + 1),
        default=1,
        metavar="N",
        help=f"which run for these kernels this is; the last is {MAX_ROUNDS}",
    )


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Keep the kernel sets that are whole; print which cells can be built, as lines for ``$GITHUB_OUTPUT``."""
    plan = WorkflowJobs.read(options.plan)
    with log_to_stderr():
        published = published_cells(open_publisher(options.target, environ).rows())
        gathered = fail_after_last_round(
            collect_sets(plan, options.kernels, open_archive_host(options.target, environ)), options.round
        )
    for item in gathered:
        print_messages(f"{item.set_jobs.id}: {item.state.value}")
        if item.error:
            print_messages(f"  {item.error}")
            print_messages(f"  hint: {item.error.hint}")
    cells = buildable_cells(plan, gathered, published)
    later = any(item.state is SetState.PENDING for item in gathered)
    values = {
        "later": later,
        "next-round": options.round + 1,
        "count": len(cells),
        "shards": sharded_strategy_json(cell_entries(cells)),
        "groups": group_matrix(cells),
    }
    print_results(*output_lines(values))
    return DONE
