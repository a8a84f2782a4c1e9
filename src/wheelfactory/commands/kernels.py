"""`wheelfactory kernels`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from wheelfactory.commands.executor_options import add_executor, executor_of
from wheelfactory.commands.kernel_options import add_budget, deadline_of
from wheelfactory.commands.options import (
    Environ,
    add_cache,
    add_matrix,
    directory,
    show,
    workshop_of,
)
from wheelfactory.compile.shards import Shard
from wheelfactory.errors import DONE, InputError
from wheelfactory.files import remove_scratch
from wheelfactory.kernels.archive import find_archives, is_shard, join
from wheelfactory.kernels.compile import compile_kernels
from wheelfactory.kernels.handover import Wanted, kernels_folder
from wheelfactory.kernels.kernel_set import KernelSet, kernel_sets, require_set
from wheelfactory.matrix import expand
from wheelfactory.progress import Steps
from wheelfactory.workshop import Workshop


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.epilog = "`wheelfactory plan` lists the kernel sets, and into how many shards to cut each"
    parser.add_argument("set", metavar="SET", help="a kernel set, such as fa2.8.3-rocm6.4-gfx90a_gfx942-cxx11")
    parser.add_argument("--shard", type=_shard, metavar="I/N", help="compile one of N equal parts of it")
    parser.add_argument("--join", action="store_true", help="compile nothing: make one archive of the shards in DIR")
    parser.add_argument(
        "--dest",
        type=Path,
        default=Path("kernels"),
        metavar="DIR",
        help="where archives are (default: %(default)s)",
    )
    parser.add_argument(
        "--ledger",
        type=_file,
        metavar="FILE",
        help="cut shards by these measurements, the same for every shard (default: by the table that comes along)",
    )
    add_budget(parser)
    add_executor(parser)
    add_matrix(parser)
    add_cache(parser)


def _shard(text: str) -> Shard:
    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"not a file: {text}")
    return path.absolute()


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Compile a kernel set or one shard of it; print the path of the archive."""
    started = time.time()
    if options.join and options.shard:
        raise InputError("bad arguments", "--join with --shard", "compile the shards first, then join them")
    workshop, dest = workshop_of(options, environ), directory(options.dest)
    kernel_set = require_set(kernel_sets(workshop.matrix, expand(workshop.matrix).cells), options.set)
    deadline = deadline_of(options, started)
    if options.join:
        show(str(_join(workshop, kernel_set, dest)))
        return DONE
    remove_scratch(dest)
    wanted = Wanted(shard=options.shard, cut_by=options.ledger, deadline=deadline)
    name = f"{kernel_set.id} {options.shard or ''}".rstrip()
    with (
        executor_of(options, workshop, kernel_set.cells) as executor,
        Steps(1) as steps,
        steps.step(name) as part,
    ):
        archive = compile_kernels(workshop, executor, kernel_set, wanted, dest, part)
    show(str(archive))
    return DONE


def _join(workshop: Workshop, kernel_set: KernelSet, folder: Path) -> Path:
    shards = [path for path in find_archives(folder, kernel_set.id) if is_shard(path)]
    if not shards:
        hint = f"compile them: wheelfactory kernels {kernel_set.id} --shard 1/N --dest {folder}"
        raise InputError("no shards to join", f"of {kernel_set.id} in {folder}", hint)
    return join(shards, folder, kernels_folder(workshop))
