"""`wheelfactory ci digest`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import Environ, add_option, print_results
from wheelfactory.core.digest import folder_sha256
from wheelfactory.core.errors import DONE, InputError
from wheelfactory.pipeline.collect import require_sealed
from wheelfactory.pipeline.jobs import output_lines


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("folder", type=Path, help="folder of an artifact; hidden files do not count")
    add_option(parser, "--artifact NAME", "compare with --sha256; name this artifact in the error")
    add_option(parser, "--sha256 SHA256", "digest that the job that made the artifact printed")


def execute(options: argparse.Namespace, _environ: Environ) -> int:
    """Print the digest of a folder as a line for ``$GITHUB_OUTPUT``, or compare it; it is empty without files.

    Any job of a run can replace an artifact, but only the job itself can set its outputs. Raises `VerificationError` if
    the digests differ.
    """
    if (options.artifact is None) != (options.sha256 is None):
        raise InputError("bad arguments", str(options.folder), "--artifact and --sha256 belong together")
    folder = options.folder.expanduser()
    if options.sha256 is None:
        print_results(*output_lines({"sha256": folder_sha256(folder)}))
    else:
        require_sealed(options.artifact, folder, options.sha256)
    return DONE
