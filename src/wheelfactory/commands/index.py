"""`wheelfactory index`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, add_release, show
from wheelfactory.errors import DONE, InputError
from wheelfactory.files import locked
from wheelfactory.index import make_pages, write_index
from wheelfactory.manifest import MANIFEST_NAME, read_manifest


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_release(parser)


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Write the index of a release directory from its manifest."""
    if not options.dest.is_dir():
        raise InputError("no such directory", str(options.dest), "name a release directory")
    with locked(options.dest):
        pages = make_pages(read_manifest(options.dest / MANIFEST_NAME))
        write_index(options.dest, pages)
    show(f"{options.dest / 'simple'}: {len(pages)} pages")
    return DONE
