"""`wheelfactory index`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from wheelfactory.commands.options import add_option, add_shared, as_directory, print_messages, print_results
from wheelfactory.commands.targets import LOST_NAME, add_target, find_site_url, open_publisher, require_target
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.files import lock_folder, write_atomic
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.core.wrap import count_text
from wheelfactory.matrix.load import load_matrix
from wheelfactory.release.directory import DirectoryPublisher, count_index_pages, write_pages
from wheelfactory.release.manifest import WheelRow, manifest_bytes, read_manifest
from wheelfactory.release.transaction import Publisher
from wheelfactory.site.site import Site


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory index github:OWNER/REPO --dest site"
    add_target(parser)
    where = parser.add_mutually_exclusive_group()
    add_option(where, "--dest DIR", "write a site that links to the wheels into DIR")
    add_option(where, "--packages FILE", "write only the list of wheels, as Markdown")
    add_shared(parser, "--site URL", "--matrix FILE")


def execute(options: argparse.Namespace) -> int:
    """Write the index of a release directory, a site for any target, or a list of wheels."""
    publisher = open_publisher(options.target, options.environ)
    rows = _rows(publisher, options.target)
    if options.packages:
        site = Site(load_matrix(options.matrix), rows, _site_url(options))
        write_atomic(options.packages, site.packages_page().encode())
        print_results(f"{options.packages}: {count_text(sum(row.cell is not None for row in rows), 'wheel')}")
    elif options.dest:
        folder = as_directory(options.dest)
        served = _with_urls(publisher, rows)
        pages = _write_linked_site(folder, served, options)
        if len(served) < len(rows):
            write_atomic(folder / LOST_NAME, manifest_bytes(row for row in rows if not row.url))
        print_results(f"{folder}: {count_index_pages(pages)} pages")
    elif isinstance(publisher, DirectoryPublisher):
        pages = Site(load_matrix(options.matrix), rows, options.site).render()
        with lock_folder(publisher.folder):
            write_pages(publisher.folder, pages)
        print_results(f"{publisher.folder / 'simple'}: {count_index_pages(pages)} pages")
    else:
        raise InputError("no directory for the index", options.target, "name one with --dest DIR")
    return DONE


def _rows(publisher: Publisher, target: str) -> tuple[WheelRow, ...]:
    """Read the published rows. Raises `InputError` for a missing directory."""
    if not isinstance(publisher, DirectoryPublisher):
        with log_to_stderr():
            return publisher.rows()
    require_target(target)
    return read_manifest(publisher.folder / MANIFEST_NAME)


def _write_linked_site(folder: Path, rows: Sequence[WheelRow], options: argparse.Namespace) -> Mapping[str, bytes]:
    """Write a site that links to wheels elsewhere, and to docs/ if the folder has it."""
    has_docs = (folder / "docs/index.html").is_file()
    pages = Site(load_matrix(options.matrix), rows, _site_url(options), has_docs).render()
    with lock_folder(folder):
        write_atomic(folder / MANIFEST_NAME, manifest_bytes(rows))
        write_pages(folder, pages)
    return pages


def _site_url(options: argparse.Namespace) -> str:
    """Return the URL of the site; empty if it is unknown."""
    return find_site_url(options.target, options.site) or ""


def _with_urls(publisher: object, rows: Sequence[WheelRow]) -> list[WheelRow]:
    """Return the rows with the URLs of their files; skip rows whose release was deleted."""
    if not isinstance(publisher, DirectoryPublisher):
        for row in rows:
            if row.url is None:
                print_messages(f"warning: skipping {row.filename}: its release was deleted")
        return [row for row in rows if row.url]
    wheels = publisher.wheels_dir.resolve()
    instead = "to share it, serve the release directory instead"
    print_messages(f"warning: this site links to local files in {wheels}; {instead}")
    return [row.model_copy(update={"url": (wheels / row.filename).as_uri()}) for row in rows]
