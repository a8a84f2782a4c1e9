"""`wheelfactory ci baseline`."""

from __future__ import annotations

import argparse

from wheelfactory.build.pinned import PlainBuilds, pin_release
from wheelfactory.build.products import pin_product
from wheelfactory.commands.options import Environ, add_shared, prepare_cache, read_context
from wheelfactory.core.cell import products_beside
from wheelfactory.core.errors import DONE
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.pipeline.jobs import parse_batch_cells


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("batches", help="build for the cells of these batches (output `batches` of `ci jobs`)")
    add_shared(parser, "--matrix FILE", "--cache DIR")


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Build the reference wheels that wheels of these cells are compared with, into the cache."""
    builds = PlainBuilds(prepare_cache(options, environ))
    context, cells = read_context(options, environ), parse_batch_cells(options.batches)
    with log_to_stderr():
        for name in products_beside(cells):
            builds.make_wheel(pin_product(name, context))
        for version in sorted({cell.flash_attn for cell in cells}):
            builds.make_wheel(pin_release(version, context))
    return DONE
