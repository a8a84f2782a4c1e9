"""`wheelfactory ci answer`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wheelfactory.commands.options import Environ, print_results
from wheelfactory.commands.targets import add_readonly_target, add_site, find_site_url
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.site.request import MAX_BODY, search_link


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_readonly_target(parser)
    add_site(parser)
    parser.add_argument(
        "--body", default="-", metavar="FILE", help="file with the text of the issue (default: -, stdin)"
    )


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print the URL of the search page, filled in from a wheel request."""
    site = find_site_url(options.target, options.site)
    if site is None:
        raise InputError("cannot determine the URL of the search page", options.target, "pass it with --site URL")
    print_results(search_link(site, _read(options.body)))
    return DONE


def _read(name: str) -> str:
    """Read the issue body from a file or stdin, up to a size limit."""
    # anyone can write a request, so the size is limited and bytes that are not UTF-8 are replaced
    if name == "-":
        return sys.stdin.buffer.read(4 * MAX_BODY).decode("utf-8", "replace")
    try:
        with Path(name).open("rb") as file:
            return file.read(4 * MAX_BODY).decode("utf-8", "replace")
    except OSError as error:
        raise InputError("cannot read", f"{name} ({error.strerror})", "name a file, or - for stdin") from None
