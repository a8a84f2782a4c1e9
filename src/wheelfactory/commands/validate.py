"""`wheelfactory validate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, add_cache, add_matrix, prepare_cache, print_results, print_text
from wheelfactory.core.errors import DONE, VERIFICATION_FAILED, InputError
from wheelfactory.core.host import read_host
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.emulator.families import family_of
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.gpu.validate.compute import DEFAULT_ARCH
from wheelfactory.gpu.validate.validate import validate
from wheelfactory.gpu.validate.validation_text import validation_lines
from wheelfactory.matrix.load import load_matrix

INSTALLED = "installed"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory validate dist/flash_attn-2.8.3-py3-none-any.whl --json"
    help_text = "wheel to install temporarily, or `installed` for the installed flash-attn (default)"
    parser.add_argument("target", nargs="?", default=INSTALLED, metavar="WHEEL|installed", help=help_text)
    parser.add_argument("--python", metavar="PATH", help="Python with torch (default: the active environment)")
    where = parser.add_mutually_exclusive_group()
    help_text = "test mode: run the kernels of a Triton wheel on another vendor's GPU"
    where.add_argument("--non-amd-gpu", action="store_true", help=help_text)
    help_text = "execute the kernels of a Triton wheel on an emulator of this arch (default without a GPU: gfx942)"
    where.add_argument("--emulate", metavar="ARCH", type=_emulated_arch, help=help_text)
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    add_matrix(parser)
    add_cache(parser)


def _emulated_arch(text: str) -> str:
    try:
        return family_of(text).arch
    except NotRunError:
        raise InputError("no emulator of this arch", text, f"name one such as {DEFAULT_ARCH} or gfx1100") from None


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print each computation with its error; exit code 3 if any is wrong."""
    path = None if options.target == INSTALLED else Path(options.target)
    with log_to_stderr():
        found = validate(
            path,
            options.python,
            non_amd_gpu=options.non_amd_gpu,
            emulated_arch=options.emulate,
            matrix=load_matrix(options.matrix),
            host=read_host(environ),
            environ=environ,
            cache=prepare_cache(options, environ),
        )
    if options.json:
        print_results(found.model_dump_json(indent=2))
    else:
        print_text(*validation_lines(found))
    return VERIFICATION_FAILED if found.failed else DONE
