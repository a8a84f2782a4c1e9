"""Kernel set -> compiled objects, all or one shard, as an archive."""

from __future__ import annotations

from pathlib import Path

from wheelfactory.compile.order import SHARD
from wheelfactory.compile.shards import Shard
from wheelfactory.compile.store import Store
from wheelfactory.errors import BuildError
from wheelfactory.executor import Executor
from wheelfactory.files import scratch_dir
from wheelfactory.kernels.archive import pack
from wheelfactory.kernels.handover import Wanted, hand_over, heard, kernels_folder
from wheelfactory.kernels.kernel_set import KernelSet
from wheelfactory.progress import Part
from wheelfactory.recipe import make_recipe
from wheelfactory.sources import fetch_source
from wheelfactory.upstream import Setup, run_setup
from wheelfactory.workshop import Workshop

WHOLE = Shard(1, 1)
"""All of a set, as one shard."""


def compile_kernels(
    workshop: Workshop, executor: Executor, kernel_set: KernelSet, wanted: Wanted, folder: Path, part: Part
) -> Path:
    """Compile a shard of a kernel set and pack its objects into `folder`; gives the archive.

    setup.py runs as for a cell of the set, up to the link. What the store has is not compiled again, so what was
    interrupted goes on where it was. Raises `BuildError` if it cannot be compiled here or a compile fails,
    `RunAgainError` if the time is up.
    """
    cell = executor.nearest(kernel_set.cells)  # any of them gives the same kernels
    recipe = make_recipe(workshop.matrix, cell, executor.host(cell), workshop.environ, by_hand=False)
    release = workshop.matrix.flash_attn[cell.flash_attn]
    source = fetch_source(cell.flash_attn, release, workshop.cache / "sources", workshop.environ)
    place = executor.place(cell, part)
    shard = wanted.shard or WHOLE
    name = kernel_set.id if shard == WHOLE else f"{kernel_set.id}.shard-{shard.index}-of-{shard.count}"
    with scratch_dir(workshop.cache) as scratch:
        setup = Setup(recipe, source, place, scratch)
        handed = hand_over(
            workshop, setup, kernel_set.id, Wanted(wanted.archives, shard, wanted.cut_by, wanted.deadline)
        )
        try:
            run_setup(workshop, setup, name, handed, part)
        except BuildError:
            report = heard(workshop, setup, name)
            if report is None or report.state != SHARD:
                raise
        else:
            raise BuildError("no kernels were compiled", kernel_set.id, "its setup.py does not generate any")
    store = Store.open(kernels_folder(workshop), report.key)
    return pack(store, kernel_set.id, folder, None if shard == WHOLE else str(shard), report.names)
