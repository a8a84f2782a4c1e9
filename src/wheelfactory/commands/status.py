"""`wheelfactory status`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, add_matrix, add_only, add_release, show, tell
from wheelfactory.errors import DONE, FAILED
from wheelfactory.manifest import WheelRow, read_manifest
from wheelfactory.matrix import expand, load_matrix
from wheelfactory.matrix.select import select


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_release(parser)
    add_matrix(parser)
    add_only(parser)


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print which selected cells a release directory has; exit code 1 if some are missing or yanked."""
    cells = select(expand(load_matrix(options.matrix)), options.only)
    rows = {row.cell: row for row in sorted(read_manifest(options.dest), key=_is_good) if row.cell}
    for cell in cells:
        row = rows.get(cell.id)
        state = "missing" if row is None else "published" if row.yanked is None else f"yanked: {row.yanked}"
        show(f"{cell.id}  {state}")
    good = sum(cell.id in rows and rows[cell.id].yanked is None for cell in cells)
    yanked = sum(cell.id in rows and rows[cell.id].yanked is not None for cell in cells)
    tell(f"{good} of {len(cells)} cells are published in {options.dest}" + (f", {yanked} are yanked" if yanked else ""))
    return DONE if good == len(cells) else FAILED


def _is_good(row: WheelRow) -> bool:
    """Sorts a yanked wheel before the one that replaced it under a build tag."""
    return row.yanked is None
