"""`wheelfactory ci gather`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, show, tell
from wheelfactory.commands.targets import add_target, publisher_of, shelf_of
from wheelfactory.core.errors import DONE
from wheelfactory.core.progress import announcing
from wheelfactory.matrix.select import two_levels
from wheelfactory.pipeline.gather import MOST_ROUNDS, State, buildable, gather_sets, settle
from wheelfactory.pipeline.jobs import Plan, cell_entries, group_strategy, outputs
from wheelfactory.release.manifest import published_cells


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_target(parser)
    parser.add_argument("--plan", type=Path, required=True, metavar="FILE", help="what `ci jobs` wrote")
    parser.add_argument("--kernels", type=Path, required=True, metavar="DIR", help="where the archives of shards are")
    parser.add_argument(
        "--round",
        type=int,
        choices=range(1, MOST_ROUNDS + 1),
        default=1,
        metavar="N",
        help=f"which run for these kernels this is; the last is {MOST_ROUNDS}",
    )


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Keep the kernel sets that are whole; print which cells can be built, as lines for ``$GITHUB_OUTPUT``."""
    plan = Plan.read(options.plan)
    with announcing():
        published = published_cells(publisher_of(options.target, environ).rows())
        gathered = settle(gather_sets(plan, options.kernels, shelf_of(options.target, environ)), options.round)
    for item in gathered:
        tell(f"{item.planned.id}: {item.state.value}")
        if item.error:
            tell(f"  {item.error}")
            tell(f"  hint: {item.error.hint}")
    cells = buildable(plan, gathered, published)
    later = any(item.state is State.LATER for item in gathered)
    values = {
        "later": later,
        "next-round": options.round + 1,
        "count": len(cells),
        "shards": two_levels(cell_entries(cells)),
        "groups": group_strategy(cells),
    }
    show(*outputs(values))
    return DONE
