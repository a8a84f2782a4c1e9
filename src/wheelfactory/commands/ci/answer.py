"""`wheelfactory ci answer`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wheelfactory.commands.options import Environ, add_matrix, show
from wheelfactory.commands.published import add_published, add_site, published_rows, site_at
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix
from wheelfactory.site.answer import answer
from wheelfactory.site.request import MOST_CHARACTERS


def add(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_published(parser)
    add_matrix(parser)
    add_site(parser)
    parser.add_argument("--body", default="-", metavar="FILE", help="the text of the issue (default: -, stdin)")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print the answer to a wheel request, as Markdown; a request that is not understood is answered too."""
    matrix = load_matrix(options.matrix)
    body = _read(options.body)
    rows = published_rows(options.target, environ)
    text = answer(matrix, expand(matrix), rows, body, site_at(options.target, options.site))
    show(text.removesuffix("\n"))
    return DONE


def _read(name: str) -> str:
    """The beginning of the text; bytes that are none of UTF-8 are replaced, since any may come in."""
    if name == "-":
        return sys.stdin.buffer.read(4 * MOST_CHARACTERS).decode("utf-8", "replace")
    try:
        with Path(name).open("rb") as file:
            return file.read(4 * MOST_CHARACTERS).decode("utf-8", "replace")
    except OSError as error:
        raise InputError("cannot read", f"{name} ({error.strerror})", "name a file, or - for stdin") from None
