"""`wheelfactory index`."""

from __future__ import annotations

from argparse import Namespace

from wheelfactory.commands.options import Environ, Subparsers, add_release, show
from wheelfactory.errors import DONE, InputError
from wheelfactory.files import locked
from wheelfactory.index import make_pages, write_index
from wheelfactory.manifest import read_manifest


def add(subparsers: Subparsers) -> None:
    """The command's options."""
    parser = subparsers.add_parser("index", help="write the index of a release directory from its manifest")
    add_release(parser)
    parser.set_defaults(execute=execute)


def execute(options: Namespace, _environ: Environ) -> int:
    """Write the index of a release directory from its manifest."""
    if not options.dest.is_dir():
        raise InputError("no such directory", str(options.dest), "name a release directory")
    with locked(options.dest):
        pages = make_pages(read_manifest(options.dest))
        write_index(options.dest, pages)
    show(f"{options.dest / 'simple'}: {len(pages)} pages")
    return DONE
