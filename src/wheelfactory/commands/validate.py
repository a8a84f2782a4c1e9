"""`wheelfactory validate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import add_option, add_shared, print_results, print_text, read_context
from wheelfactory.core.errors import DONE, VERIFICATION_FAILED, InputError
from wheelfactory.core.progress import log_to_stderr
from wheelfactory.emulator.families import family_of
from wheelfactory.emulator.findings import NotRunError
from wheelfactory.gpu.compute import DEFAULT_ARCH
from wheelfactory.gpu.validate import validate
from wheelfactory.gpu.validation_report import validation_lines

INSTALLED = "installed"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "example: wheelfactory validate dist/flash_attn-2.8.3-py3-none-any.whl --json"
    help_text = "wheel to install temporarily, or `installed` for the installed flash-attn (default)"
    parser.add_argument("target", nargs="?", default=INSTALLED, metavar="WHEEL|installed", help=help_text)
    add_option(parser, "--python PATH", "Python with torch (default: the active environment)")
    where = parser.add_mutually_exclusive_group()
    add_option(where, "--non-amd-gpu", "test mode: run the kernels of a Triton wheel on another vendor's GPU")
    help_text = "execute the kernels of a Triton wheel on an emulator of this arch (default without a GPU: gfx942)"
    add_option(where, "--emulate ARCH", help_text, type=_emulated_arch)
    add_option(parser, "--json", "print the report as one JSON object")
    add_shared(parser, "--matrix FILE", "--cache DIR")


def _emulated_arch(text: str) -> str:
    try:
        return family_of(text).arch
    except NotRunError:
        raise InputError("no emulator of this arch", text, f"name one such as {DEFAULT_ARCH} or gfx1100") from None


def execute(options: argparse.Namespace) -> int:
    """Print each computation with its error; exit code 3 if any is wrong."""
    path = None if options.target == INSTALLED else Path(options.target)
    gpu = {"non_amd_gpu": options.non_amd_gpu, "emulated_arch": options.emulate}
    with log_to_stderr():
        found = validate(path, options.python, **gpu, context=read_context(options))
    if options.json:
        print_results(*found.model_dump_json(indent=2).split("\n"))
    else:
        print_text(*validation_lines(found))
    return VERIFICATION_FAILED if found.failed else DONE
