"""`wheelfactory plan`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from wheelfactory.cell import Cell
from wheelfactory.commands.options import Environ, add_matrix, add_only, show, tell
from wheelfactory.errors import DONE, BuildError
from wheelfactory.host import Host, read_host
from wheelfactory.matrix import Matrix, expand, load_matrix
from wheelfactory.matrix.select import select
from wheelfactory.recipe import make_recipe


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_matrix(parser)
    add_only(parser)
    parser.add_argument("--json", action="store_true", help="one JSON array")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print each selected cell with its archs and whether this machine can build it."""
    facts = load_matrix(options.matrix)
    host = read_host(environ)
    entries = [_plan_entry(facts, cell, host, environ) for cell in select(expand(facts), options.only)]
    if options.json:
        show(json.dumps(entries))
        return DONE
    for entry in entries:
        show(f"{entry['id']}  {','.join(entry['archs'])}  {entry['here']}")
    here = sum(entry["here"] == "builds here" for entry in entries)
    tell(
        f"{len(entries)} cells, {here} of them can be built here ({host.cores} cores, {host.memory_gib:.0f} GiB free, "
        f"ROCm {host.rocm or 'not found'})"
    )
    return DONE


def _plan_entry(facts: Matrix, cell: Cell, host: Host, environ: Environ) -> dict[str, Any]:
    try:
        make_recipe(facts, cell, host, environ, by_hand=False)
        here = "builds here"
    except BuildError as error:
        here = error.which
    return {"id": cell.id, "archs": facts.archs(cell), "image": facts.image(cell).tag, "here": here}
