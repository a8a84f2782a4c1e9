"""`wheelfactory build`."""

from __future__ import annotations

import argparse
import time
from functools import partial

from wheelfactory.build.products import build_wheel, pin_product
from wheelfactory.build.setup_py import make_recipe, resolve_rocm_version
from wheelfactory.commands.executor_options import (
    add_executor,
    add_kernels,
    has_compiled_cell,
    open_executor,
    read_scope,
    use_store,
)
from wheelfactory.commands.options import (
    Environ,
    add_dest,
    add_option,
    add_shared,
    as_directory,
    cells_of_versions,
    print_results,
    read_context,
    require_cell,
)
from wheelfactory.core.cell import PRODUCTS, Backend, Cell
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.core.files import remove_scratch
from wheelfactory.core.progress import Steps, log_to_stderr
from wheelfactory.matrix.expand import expand
from wheelfactory.matrix.facts import Context
from wheelfactory.pipeline.build import build_cell


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    forms = ("CELL", "FLASH_ATTN PYTHON TORCH ROCM", "PRODUCT")
    parser.usage = "\n       ".join(f"%(prog)s [options] {form}" for form in forms)
    parser.epilog = (
        "example: wheelfactory build 2.8.3 3.11 2.9.1 6.4 --backend triton\n"
        "products: flash-attention-amd (the fallback in pure PyTorch), flash-attn-fallback (the same by the name "
        "flash-attn), amd-aiter (Triton kernels of previews)\n"
        "environment variables read with four versions: PYTORCH_ROCM_ARCH='gfx90a;gfx942' (archs), MAX_JOBS=8 "
        "(parallel compiles), BUILD_TRITON_BACKEND=true (build the Triton wheel too), ROCM_PATH=/opt/rocm"
    )
    parser.add_argument("cell", nargs="*", help="cell id, four versions (ROCM can be auto), or a product")
    add_option(parser, "--backend ck|triton", "backend to build, if the cell is given as four versions (default: ck)")
    add_dest(parser, "dist", "write the wheel to this directory")
    add_kernels(parser)
    add_executor(parser)
    add_shared(parser, "--matrix FILE", "--cache DIR", "--cache-size SIZE")


def execute(options: argparse.Namespace) -> int:
    """Build one cell (two with BUILD_TRITON_BACKEND=true) or a wheel without one; print the path of each wheel."""
    started = time.time()  # first: --budget includes reading the matrix and preparing images
    dest = as_directory(options.dest)
    context = read_context(options)
    if len(options.cell) == 1 and options.cell[0] in PRODUCTS and options.backend is None:
        with log_to_stderr():
            print_results(str(build_wheel(pin_product(options.cell[0], context), dest, context.cache)))
        return DONE
    cells, local_build = _cells_to_build(options, context)
    scope = read_scope(options, started)
    remove_scratch(dest)  # leftovers of a killed run
    paths, compiled = [], has_compiled_cell(cells)
    build = partial(build_cell, context=context, local_build=local_build, scope=scope)
    with open_executor(options, compiled=compiled, context=context) as executor:
        for cell in cells:  # check every cell before the first download
            make_recipe(context.matrix, cell, executor.describe_host(cell), options.environ, local_build=local_build)
        with use_store(context.cache, options.cache_size, compiled=compiled), Steps(len(cells)) as steps:
            for cell in cells:
                with steps.step(cell.id) as report_progress:
                    paths.append(str(build(executor, cell, dest, report_progress)))
    print_results(*paths)
    return DONE


def _cells_to_build(options: argparse.Namespace, context: Context) -> tuple[list[Cell], bool]:
    """Return the cells that the arguments name, and whether they name four versions: a build for this machine."""
    expansion = expand(context.matrix)
    if len(options.cell) == 1 and options.backend:
        raise InputError("bad arguments", "--backend without four versions", "omit it: a cell id ends with its backend")
    if len(options.cell) == 1 and options.cell[0].startswith("fa"):
        return [require_cell(expansion, options.cell[0])], False
    if len(options.cell) != 4:
        hint = f"name a cell id, FLASH_ATTN PYTHON TORCH ROCM (such as 2.8.3 3.11 2.9.1 6.4), or {' | '.join(PRODUCTS)}"
        raise InputError("not a cell", " ".join(options.cell) or "no argument", hint)
    *versions, rocm = options.cell
    versions.append(resolve_rocm_version(context.matrix, context.host, rocm))
    backends = [Backend(options.backend or "ck")]
    if _has_triton_flag(context.environ) and Backend.TRITON not in backends:
        backends.append(Backend.TRITON)
    return list(cells_of_versions(expansion, versions, backends)), True


def _has_triton_flag(environ: Environ) -> bool:
    value = environ.get("BUILD_TRITON_BACKEND", "").lower()
    if value not in ("", "true", "false"):
        raise InputError("BUILD_TRITON_BACKEND is neither true nor false", value, "set it to true or unset it")
    return value == "true"
