"""`wheelfactory ci baseline`."""

from __future__ import annotations

import argparse

from wheelfactory.build.products import make_plain_wheel, pin_product, pin_release
from wheelfactory.commands.options import Environ, add_shared, read_context
from wheelfactory.core.cell import PRODUCTS, Cell, products_beside, split_names
from wheelfactory.core.errors import DONE
from wheelfactory.core.progress import log_to_stderr


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("cells", help="build for these cells and products, separated by spaces, as for `ci batch`")
    add_shared(parser, "--matrix FILE", "--cache DIR")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Build the reference wheels that wheels of these cells are compared with, into the cache."""
    context = read_context(options, environ)
    cells = [Cell.parse(name) for name in split_names(options.cells) if name not in PRODUCTS]
    with log_to_stderr():
        for name in products_beside(cells):
            make_plain_wheel(pin_product(name, context), context.cache)
        for version in sorted({cell.flash_attn for cell in cells}):
            make_plain_wheel(pin_release(version, context), context.cache)
    return DONE
