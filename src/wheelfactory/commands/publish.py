"""`wheelfactory publish`."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from wheelfactory.commands.executor_options import add_place, executor_of
from wheelfactory.commands.options import (
    Environ,
    add_cache,
    add_extended,
    add_matrix,
    add_release,
    directory,
    show,
    workshop_of,
)
from wheelfactory.errors import DONE, InputError
from wheelfactory.executor import Executor
from wheelfactory.files import locked, remove_scratch
from wheelfactory.index import make_pages, write_index
from wheelfactory.progress import announcing
from wheelfactory.publish import DirectoryPublisher
from wheelfactory.publish import publish as publish_wheels
from wheelfactory.publish import yank as yank_wheel
from wheelfactory.publish.additions import Addition, addition, missing_dependencies
from wheelfactory.verify.gates import named
from wheelfactory.verify.gates import verify as run_gates
from wheelfactory.workshop import Workshop


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_release(parser)
    parser.add_argument("wheels", nargs="*", type=Path, metavar="WHEEL")
    parser.add_argument("--yank", metavar="NAME", help="mark this published file as not to be installed")
    parser.add_argument("--reason", default="", help="why it is yanked; installers show it")
    add_matrix(parser)
    add_cache(parser)
    add_extended(parser)
    add_place(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Verify and publish wheels into a directory, or yank one there; rewrite its index."""
    publisher = DirectoryPublisher(directory(options.dest))
    if bool(options.yank) == bool(options.wheels):
        raise InputError(
            "either publish or yank", str(options.dest), "name wheels, or a published file with --yank NAME"
        )
    if options.yank and not publisher.folder.is_dir():
        raise InputError("no such directory", str(options.dest), "name the release directory that has the file")
    extended = tuple(named(options.extended))
    workshop = workshop_of(options, environ)
    with executor_of(options, workshop, ()) as executor:
        additions = [_verified(workshop, executor, path, extended) for path in options.wheels]
    with locked(publisher.folder):
        remove_scratch(publisher.folder)
        if options.yank:
            rows = yank_wheel(publisher, options.yank, options.reason)
        else:
            rows = publish_wheels(publisher, [*missing_dependencies(workshop, publisher), *additions])
        write_index(publisher.folder, make_pages(rows))
    show(f"{publisher.folder}: {len(rows)} files published")
    return DONE


def _verified(workshop: Workshop, executor: Executor, path: Path, extended: Collection[str]) -> Addition:
    with announcing():
        return addition(path, run_gates(path, workshop, extended=extended, elsewhere=executor.elsewhere))
