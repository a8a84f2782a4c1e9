"""`wheelfactory ci digest`."""

from __future__ import annotations

import argparse
from pathlib import Path

from wheelfactory.commands.options import print_outputs
from wheelfactory.core.errors import DONE
from wheelfactory.core.files import folder_sha256, require_sealed


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("folder", type=Path, help="folder of an artifact; hidden files do not count")
    compare = "compare the folder of this artifact with the sha256 that its job printed"
    parser.add_argument("--artifact", nargs=2, metavar=("NAME", "SHA256"), help=compare)


def execute(options: argparse.Namespace) -> int:
    """Print the digest of a folder (empty without files) as a line for ``$GITHUB_OUTPUT``, or compare it.

    Any job of a run can replace an artifact, but only the job itself can set its outputs. Raises `VerificationError` if
    the digests differ.
    """
    folder = options.folder.expanduser()
    if options.artifact:
        name, sha256 = options.artifact
        require_sealed(name, sha256, folder)
    else:
        print_outputs({"sha256": folder_sha256(folder)})
    return DONE
