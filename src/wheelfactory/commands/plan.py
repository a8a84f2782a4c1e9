"""`wheelfactory plan`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from wheelfactory.cell import Cell
from wheelfactory.commands.kernel_options import amount
from wheelfactory.commands.options import Environ, add_cache, add_matrix, add_only, show, tell, workshop_of
from wheelfactory.compile.costs import Ledger
from wheelfactory.errors import DONE, BuildError, InputError, SourceError
from wheelfactory.host import Host
from wheelfactory.images.outlook import ImageOutlook, image_outlooks, outlook_lines
from wheelfactory.kernels.census import Census, take_census
from wheelfactory.kernels.describe import entry_of, entry_without, lines_of, lines_without
from wheelfactory.kernels.forecast import Forecast, Knowledge, Runners, make_forecast
from wheelfactory.kernels.handover import ledger_path
from wheelfactory.kernels.kernel_set import KernelSet, kernel_sets
from wheelfactory.matrix import Matrix, expand
from wheelfactory.matrix.select import GITHUB_MATRIX_LIMIT, select
from wheelfactory.recipe import make_recipe
from wheelfactory.workshop import Workshop

Outlook: TypeAlias = "Forecast | str"
"""What a kernel set will take, or why that cannot be told."""


@dataclass(frozen=True)
class Wish:
    """How kernel sets are to be cut, and for which machines; the budget is that of a shard, in hours."""

    runners: Runners
    shards: int | None
    budget_h: float


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_matrix(parser)
    add_only(parser)
    add_cache(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object with cells, kernel-sets and images")
    cutting = parser.add_mutually_exclusive_group()
    cutting.add_argument("--shards", type=_shards, metavar="N", help="cut each kernel set into N shards")
    cutting.add_argument(
        "--budget", type=amount, default="5", metavar="HOURS", help="or into as few as end in time (default: 5)"
    )
    for name, kind, default, what in (
        ("--runners", _count, "20", "machines that compile at once"),
        ("--cores", _count, "4", "cores of each"),
        ("--memory", amount, "16", "GiB of each"),
        ("--disk", amount, "14", "GB of each, which hold the image as well"),
    ):
        parser.add_argument(name, type=kind, default=default, metavar="N", help=f"{what} (default: {default})")
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="measured compiles to predict and to cut by (default: those of the cache, to predict by alone)",
    )


def _count(text: str) -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,5}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"not a number from 1 to 999999: {text!r}")
    return int(text)


def _shards(text: str) -> int:
    """A number of shards that one job's matrix can hold."""
    count = _count(text)
    if count > GITHUB_MATRIX_LIMIT:
        raise argparse.ArgumentTypeError(f"{count} is more than the {GITHUB_MATRIX_LIMIT} that a GitHub matrix takes")
    return count


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print each selected cell, its archs and whether it can be built here, then what each kernel set will take."""
    runners = Runners(count=options.runners, cores=options.cores, memory_gib=options.memory, disk_gb=options.disk)
    wish = Wish(runners, options.shards, options.budget)
    workshop = workshop_of(options, environ)
    cells = select(expand(workshop.matrix), options.only)
    entries = [_plan_entry(workshop, cell) for cell in cells]
    if not options.json:
        _show_cells(entries, workshop.host)
    sets = kernel_sets(workshop.matrix, cells)
    outlooks = _outlooks(workshop, sets, _knowledge(options.ledger, ledger_path(workshop)), wish)
    images = _images(workshop.matrix, sets, outlooks, runners)
    if options.json:
        kernels = _kernel_entries(sets, outlooks, wish)
        show(json.dumps({"cells": entries, "kernel-sets": kernels, "images": [image.entry for image in images]}))
        return DONE
    for kernel_set, outlook in zip(sets, outlooks, strict=True):
        for line in _lines(kernel_set, outlook, runners):
            show(line)
    for line in outlook_lines(images, runners.disk_gb):
        show(line)
    return DONE


def _plan_entry(workshop: Workshop, cell: Cell) -> dict[str, Any]:
    facts = workshop.matrix
    try:
        make_recipe(facts, cell, workshop.host, workshop.environ, by_hand=False)
        here = "builds here"
    except BuildError as error:
        here = "builds here in a container" if _has_engine(*_engine_named(workshop)) else error.which
    slim = facts.rocm[cell.rocm].slim
    return {
        "id": cell.id,
        "archs": facts.archs(cell),
        "image": facts.image(cell).tag,
        "slim": slim and slim.tag,
        "here": here,
    }


def _engine_named(workshop: Workshop) -> tuple[str, str]:
    return workshop.environ.get("DOCKER_HOST", ""), workshop.environ.get("XDG_RUNTIME_DIR", "")


@cache
def _has_engine(host: str, runtime: str) -> bool:
    from wheelfactory.containers.engine import connect  # takes a third of a second to import, and is not always wanted

    try:
        connect({"DOCKER_HOST": host, "XDG_RUNTIME_DIR": runtime})
    except BuildError:
        return False
    return True


def _show_cells(entries: Sequence[dict[str, Any]], host: Host) -> None:
    for entry in entries:
        show(f"{entry['id']}  {','.join(entry['archs'])}  {entry['here']}")
    here = sum(entry["here"].startswith("builds here") for entry in entries)
    tell(
        f"{len(entries)} cells, {here} of them can be built here ({host.cores} cores, {host.memory_gib:.0f} GiB free, "
        f"ROCm {host.rocm or 'not found'})"
    )


def _knowledge(given: Path | None, own: Path) -> Knowledge:
    """What to predict by and to cut by.

    A machine's own ledger is for its own predictions: another machine has another one and would cut other shards.
    """
    if given is None:
        return Knowledge(Ledger.read(own), Ledger())
    if not given.is_file():
        raise InputError("no such file", str(given), "name a ledger with --ledger FILE, or leave the option out")
    ledger = Ledger.read(given)
    return Knowledge(ledger, ledger)


def _outlooks(workshop: Workshop, sets: Sequence[KernelSet], knowledge: Knowledge, wish: Wish) -> list[Outlook]:
    """The outlook of each set. Raises `InputError` if the budget of a shard is too small for one compile."""
    censuses = {version: _census(workshop, version) for version in dict.fromkeys(s.flash_attn for s in sets)}
    known: dict[tuple[str, tuple[str, ...]], Outlook] = {}
    for kernel_set in sets:
        key = (kernel_set.flash_attn, kernel_set.archs)
        if key not in known:
            known[key] = _outlook(censuses[kernel_set.flash_attn], kernel_set.archs, knowledge, wish)
    return [known[kernel_set.flash_attn, kernel_set.archs] for kernel_set in sets]


def _census(workshop: Workshop, version: str) -> Census | str:
    """The sources of a release, or why they cannot be had."""
    try:
        return take_census(version, workshop.matrix.flash_attn[version], workshop.cache, workshop.clean_environ)
    except SourceError as error:
        return "; ".join(filter(None, str(error).splitlines()))


def _outlook(census: Census | str, archs: tuple[str, ...], knowledge: Knowledge, wish: Wish) -> Outlook:
    if isinstance(census, str):
        return census
    budget_s = wish.budget_h * 3600
    try:
        return make_forecast(
            census.sources, census.bytes, archs, knowledge, wish.runners, shards=wish.shards, budget_s=budget_s
        )
    except ValueError as error:
        raise InputError(
            "no number of shards is enough for", f"--budget {wish.budget_h:g}: {error}", "give a shard more hours"
        ) from None


def _images(
    facts: Matrix, sets: Sequence[KernelSet], outlooks: Sequence[Outlook], runners: Runners
) -> list[ImageOutlook]:
    """The images in which these sets and their cells can be built, and whether the runners' disk holds each."""
    kernel_bytes = {
        cell: 0 if isinstance(outlook, str) else outlook.disk_bytes
        for kernel_set, outlook in zip(sets, outlooks, strict=True)
        for cell in kernel_set.cells
    }
    return image_outlooks(facts, kernel_bytes, runners.disk_gb)


def _lines(kernel_set: KernelSet, outlook: Outlook, runners: Runners) -> Iterator[str]:
    return lines_without(kernel_set, outlook) if isinstance(outlook, str) else lines_of(kernel_set, outlook, runners)


def _kernel_entries(sets: Sequence[KernelSet], outlooks: Sequence[Outlook], wish: Wish) -> list[dict[str, Any]]:
    return [
        entry_without(kernel_set, outlook, wish.shards)
        if isinstance(outlook, str)
        else entry_of(kernel_set, outlook, wish.runners)
        for kernel_set, outlook in zip(sets, outlooks, strict=True)
    ]
