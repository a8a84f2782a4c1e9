"""`wheelfactory ci batch`, and `ci baseline`, which builds the reference wheels that a batch is compared with."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from wheelfactory.build.products import make_plain_wheel, pin_product, pin_release
from wheelfactory.commands.executor_options import (
    add_executor,
    has_compiled_cell,
    open_executor,
    read_deadline,
    use_store,
)
from wheelfactory.commands.options import (
    add_option,
    add_shared,
    as_directory,
    find_hint,
    print_messages,
    print_outputs,
    read_context,
    require_cell,
)
from wheelfactory.core.cell import PRODUCTS, Cell, products_beside, split_names
from wheelfactory.core.errors import DONE, FAILED, RUN_AGAIN, InputError, RunAgainError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.core.published import MANIFEST_NAME
from wheelfactory.kernels.setup_env import CompileScope
from wheelfactory.matrix.expand import expand
from wheelfactory.pipeline.build import build_batch, find_wheels, prove_batch, verify_batch

REBUILD_VARIABLE = "WHEELFACTORY_REBUILD"
"""The environment variable that says which CK wheels of a batch are built again: ``one`` (default) or ``all``."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "action",
        choices=["build", "prove", "verify"],
        help="build the wheels, or run their slow gates and cache the results, or verify them; the gates run code of "
        "wheels in containers, unless --executor local",
    )
    parser.add_argument("cells", help=f"the cells, as `ci jobs` prints a batch; {' and '.join(PRODUCTS)} are ids too")
    add_option(parser, "--wheels DIR", "directory of the wheels", required=True)
    add_option(parser, "--rows DIR", "with verify: write a manifest for each cell below DIR")
    what = (
        "link the compiled kernels in DIR (default, or empty text: compile them); with verify: wheels must be linked "
        f"from these, and one is built again and compared, or all with {REBUILD_VARIABLE}=all"
    )
    add_option(parser, "--kernels DIR", what, default="", type=str)
    add_shared(parser, "--budget HOURS")
    add_executor(parser)
    add_shared(parser, "--matrix FILE", "--cache DIR")


def execute(options: argparse.Namespace) -> int:
    """Print for ``$GITHUB_OUTPUT`` whether any cell passed.

    Exit code 1 if a cell failed, 6 if the only failures are cells for which time ran out; the job uploads the wheels of
    the others.
    """
    started = time.time()
    rebuild = _check_arguments(options)
    if options.executor == "auto" and options.action != "build":
        options.executor = "docker"  # rows and proofs are trusted, and code of a wheel must not reach them
    archives = as_directory(Path(options.kernels)) if options.kernels else None
    scope = CompileScope(archives=archives, deadline=read_deadline(options, started))
    replacements = split_names(options.cells)
    context = replace(read_context(options), replacements=replacements)
    names, wheels = tuple(replacements), as_directory(options.wheels)
    expansion = expand(context.matrix)
    compiled = has_compiled_cell(require_cell(expansion, name) for name in names if name not in PRODUCTS)
    with (
        use_store(context.cache, compiled=compiled),
        open_executor(options, compiled=compiled, context=context) as executor,
    ):
        if options.action == "build":
            wheels.mkdir(parents=True, exist_ok=True)
            failures = build_batch(executor, names, wheels, scope, context=context)
        elif options.action == "prove":
            failures = prove_batch(executor, names, wheels, scope.deadline, context=context)
        else:
            rows, is_all = as_directory(options.rows), rebuild == "all"
            failures = verify_batch(executor, names, wheels, rows, scope, rebuild_all=is_all, context=context)
    for failure in failures:
        print_messages(f"error: {failure.name}: {failure.error}", f"hint: {find_hint(failure.error)}")
    verified = {path.parent.name for path in options.rows.glob(f"*/{MANIFEST_NAME}")} if options.rows else None
    passed = find_wheels(wheels).keys() if verified is None else verified
    print_outputs({"passed": not passed.isdisjoint(names)})
    if all(isinstance(failure.error, RunAgainError) for failure in failures):
        return RUN_AGAIN if failures else DONE
    return FAILED


def _check_arguments(options: argparse.Namespace) -> str:
    """Return the value of `REBUILD_VARIABLE`. Raises `InputError` for another one, or for options of another action."""
    if (options.action == "verify") != bool(options.rows) or (options.kernels and options.action == "prove"):
        raise InputError("bad arguments", options.action, "--rows belongs to verify, --kernels to build and verify")
    rebuild = options.environ.get(REBUILD_VARIABLE) or "one"
    if rebuild not in ("one", "all"):
        raise InputError(f"{REBUILD_VARIABLE} is neither one nor all", rebuild, "set it to all, or unset it")
    return rebuild


def add_baseline(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ci baseline`."""
    parser.add_argument("cells", help="build for these cells and products, separated by spaces, as for `ci batch`")
    add_shared(parser, "--matrix FILE", "--cache DIR")


def execute_baseline(options: argparse.Namespace) -> int:
    """Build the reference wheels that wheels of these cells are compared with, into the cache."""
    context = read_context(options)
    cells = [Cell.parse(name) for name in split_names(options.cells) if name not in PRODUCTS]
    with log_to_stderr():
        for name in products_beside(cells):
            make_plain_wheel(pin_product(name, context), context.cache)
        for version in sorted({cell.flash_attn for cell in cells}):
            make_plain_wheel(pin_release(version, context), context.cache)
    return DONE
