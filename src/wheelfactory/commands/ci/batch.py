"""`wheelfactory ci batch`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.executor_options import add_executor, has_compiled_cell, open_executor, use_store
from wheelfactory.commands.options import (
    Environ,
    add_cache,
    add_extended,
    add_matrix,
    as_directory,
    find_hint,
    print_messages,
    print_results,
    read_context,
    require_cell,
)
from wheelfactory.core.cell import WITHOUT_CELL
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.kernels.setup_env import CompileScope
from wheelfactory.matrix.expand import expand
from wheelfactory.pipeline.jobs import output_lines
from wheelfactory.pipeline.run_batch import build_batch, prove_batch, verify_batch
from wheelfactory.verify.gates import parse_extended


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "action",
        choices=["build", "prove", "verify"],
        help="build the wheels, or run their slow gates and cache the results, or verify them",
    )
    parser.add_argument("cells", help=f"cell ids separated by spaces; {' and '.join(WITHOUT_CELL)} are ids too")
    parser.add_argument("--wheels", type=Path, required=True, metavar="DIR", help="directory of the wheels")
    parser.add_argument(
        "--rows", type=Path, metavar="DIR", help="with verify: write a manifest for each cell below DIR"
    )
    parser.add_argument(
        "--kernels",
        default="",
        metavar="DIR",
        help="with build: link the compiled kernels in DIR (default, or if empty: compile them)",
    )
    add_extended(parser)
    add_executor(parser)
    add_matrix(parser)
    add_cache(parser)


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print for ``$GITHUB_OUTPUT`` whether any cell passed, and which failed; a failed cell is no error here.

    A later step of the job fails for it, after the wheels of the others are uploaded.
    """
    if (options.action == "verify") != bool(options.rows) or (options.kernels and options.action != "build"):
        raise InputError("bad arguments", options.action, "--rows belongs to verify, --kernels to build")
    context = read_context(options, environ)
    extended = tuple(parse_extended(options.extended))
    names, wheels = options.cells.split(), as_directory(options.wheels)
    expansion = expand(context.matrix)
    cells = [require_cell(expansion, name) for name in names if name not in WITHOUT_CELL]
    compiled = has_compiled_cell(cells)
    with (
        use_store(context.cache, compiled=compiled),
        open_executor(options, compiled=compiled, context=context) as executor,
    ):
        if options.action == "build":
            scope = CompileScope(archives=as_directory(Path(options.kernels)) if options.kernels else None)
            wheels.mkdir(parents=True, exist_ok=True)
            failures = build_batch(executor, names, wheels, scope, context=context)
        elif options.action == "prove":
            failures = prove_batch(executor, names, wheels, context=context)
        else:
            rows = as_directory(options.rows)
            failures = verify_batch(executor, names, wheels, rows, extended, context=context)
    for failure in failures:
        print_messages(f"error: {failure.name}: {failure.error}", f"hint: {find_hint(failure.error)}")
    failed = [failure.name for failure in failures]
    print_results(*output_lines({"passed": len(failed) < len(names), "failed": " ".join(failed)}))
    return DONE
