"""`wheelfactory ci kernels`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, add_dest, add_matrix, as_directory, print_results
from wheelfactory.commands.targets import add_target, open_archive_host
from wheelfactory.core.errors import DONE
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.kernels.archive_host import download_set
from wheelfactory.kernels.kernel_set import group_kernel_sets, require_set, stored_set_name
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.load import load_matrix


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser)
    parser.add_argument("sets", help="kernel set ids, separated by spaces")
    add_dest(parser, "kernels", "download into this directory")
    add_matrix(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Download the archives of several kernel sets, and print their paths."""
    matrix, dest = load_matrix(options.matrix), as_directory(options.dest)
    known = group_kernel_sets(matrix, expand(matrix).cells)
    with log_to_stderr():
        host = open_archive_host(options.target, environ)
        for name in options.sets.split():
            kernel_set = require_set(known, name)
            print_results(str(download_set(host, stored_set_name(matrix, kernel_set), kernel_set.id, dest)))
    return DONE
