"""`wheelfactory ci settings`."""

from __future__ import annotations

import argparse

from wheelfactory.commands.options import Environ, print_results
from wheelfactory.commands.targets import add_target, open_client
from wheelfactory.core.errors import DONE, FAILED
from wheelfactory.core.progress import log_to_stderr


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_target(parser, "github:OWNER/REPO")
    parser.epilog = "example: GITHUB_TOKEN=$(gh auth token) wheelfactory ci settings github:OWNER/REPO"


def execute(options: argparse.Namespace, environ: Environ) -> int:
    """Print what a repository lacks that its workflows need, and what to do; exit code 1 if it lacks anything."""
    client = open_client(options.target, environ)
    from wheelfactory.release.github.settings import find_missing_settings  # slow to import, as in `targets`

    with log_to_stderr():
        found = list(find_missing_settings(client))
    print_results(*(found or ["every setting is on"]))
    return FAILED if found else DONE
